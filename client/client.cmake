# libledgermq (static for tests and mqadmin, both forms for users) and mqadmin.
find_package(ZLIB REQUIRED)
file(GLOB CLIENT_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/client/*.c)
file(GLOB ADMIN_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/client/admin/*.c)
list(FILTER ADMIN_SOURCES EXCLUDE REGEX "/main_[a-z_]+\\.c$")

add_library(ledgermq_client STATIC ${CLIENT_SOURCES})
target_include_directories(ledgermq_client PUBLIC ${CMAKE_SOURCE_DIR})
target_link_libraries(ledgermq_client PUBLIC ledgermq_proto PkgConfig::UV ZLIB::ZLIB Threads::Threads)

# Only what ledgermq.h marks is visible to programs that link the shared library.
add_library(ledgermq_shared SHARED ${CLIENT_SOURCES})
target_include_directories(ledgermq_shared PUBLIC ${CMAKE_SOURCE_DIR})
target_compile_options(ledgermq_shared PRIVATE -fvisibility=hidden)
target_link_libraries(ledgermq_shared PRIVATE ledgermq_proto PkgConfig::UV ZLIB::ZLIB Threads::Threads)
target_link_options(ledgermq_shared PRIVATE -Wl,--exclude-libs,ALL)
set_target_properties(ledgermq_shared PROPERTIES OUTPUT_NAME ledgermq VERSION ${PROJECT_VERSION} SOVERSION 0
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

if(ADMIN_SOURCES)
  add_library(ledgermq_admin STATIC ${ADMIN_SOURCES})
  target_link_libraries(ledgermq_admin PUBLIC ledgermq_client)
endif()
if(EXISTS ${CMAKE_SOURCE_DIR}/client/admin/main_mqadmin.c)
  add_executable(mqadmin ${CMAKE_SOURCE_DIR}/client/admin/main_mqadmin.c)
  target_link_libraries(mqadmin PRIVATE ledgermq_admin)
  set_target_properties(mqadmin PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endif()
