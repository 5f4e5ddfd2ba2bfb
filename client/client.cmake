# libledgermq, static and shared, and mqadmin. ledgermq_client holds both the library and mqadmin's commands, for mqadmin and the tests.
find_package(ZLIB REQUIRED)
pkg_check_modules(LZ4 REQUIRED IMPORTED_TARGET liblz4)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
set(CLIENT_LIBRARIES PkgConfig::UV ZLIB::ZLIB PkgConfig::LZ4 PkgConfig::ZSTD Threads::Threads)
file(GLOB CLIENT_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/client/*.c)
file(GLOB ADMIN_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/client/admin/*.c)
list(FILTER ADMIN_SOURCES EXCLUDE REGEX "/main_[a-z_]+\\.c$")

# Only what ledgermq.h marks is visible to programs that link the shared library.
add_library(ledgermq_client_objects OBJECT ${CLIENT_SOURCES})
target_compile_options(ledgermq_client_objects PRIVATE -fvisibility=hidden)
target_link_libraries(ledgermq_client_objects PUBLIC ledgermq_proto ${CLIENT_LIBRARIES})

add_library(ledgermq_client STATIC $<TARGET_OBJECTS:ledgermq_client_objects> ${ADMIN_SOURCES})
target_link_libraries(ledgermq_client PUBLIC ledgermq_proto ${CLIENT_LIBRARIES})

add_library(ledgermq_shared SHARED $<TARGET_OBJECTS:ledgermq_client_objects>)
target_link_libraries(ledgermq_shared PRIVATE ledgermq_proto ${CLIENT_LIBRARIES})
target_link_options(ledgermq_shared PRIVATE -Wl,--exclude-libs,ALL)
target_include_directories(ledgermq_shared INTERFACE ${CMAKE_SOURCE_DIR}/client)
set_target_properties(ledgermq_shared PROPERTIES OUTPUT_NAME ledgermq VERSION ${PROJECT_VERSION} SOVERSION 0
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

# Holds what it needs of proto, so that it can be linked alone (with what `pkg-config --static` names).
add_library(ledgermq_static STATIC $<TARGET_OBJECTS:ledgermq_client_objects> $<TARGET_OBJECTS:ledgermq_proto>)
set_target_properties(ledgermq_static PROPERTIES OUTPUT_NAME ledgermq ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib LINKER_LANGUAGE C)

add_executable(mqadmin ${CMAKE_SOURCE_DIR}/client/admin/main_mqadmin.c)
target_link_libraries(mqadmin PRIVATE ledgermq_client)
set_target_properties(mqadmin PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

# Programs as an application's author writes them: ledgermq.h and the shared library, nothing else.
file(GLOB EXAMPLES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/client/examples/*.c)
foreach(FILE ${EXAMPLES})
  get_filename_component(NAME ${FILE} NAME_WE)
  add_executable(example_${NAME} ${FILE})
  target_link_libraries(example_${NAME} PRIVATE ledgermq_shared Threads::Threads)
  set_target_properties(example_${NAME} PROPERTIES OUTPUT_NAME ${NAME} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/examples)
endforeach()

include(GNUInstallDirs)
file(RELATIVE_PATH PKGCONFIG_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" PKGCONFIG_TO_PREFIX "${PKGCONFIG_TO_PREFIX}")
configure_file(${CMAKE_SOURCE_DIR}/client/ledgermq.pc.in ${CMAKE_BINARY_DIR}/ledgermq.pc @ONLY)
file(GLOB PUBLIC_HEADERS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/client/ledgermq*.h)
install(TARGETS ledgermq_shared ledgermq_static LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PUBLIC_HEADERS} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/ledgermq.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
