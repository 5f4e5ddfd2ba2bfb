# Fuzz targets: tests/fuzz/fuzz_NAME.c is one libFuzzer program, its seeds are in tests/fuzz/corpus/NAME.
#
#     cmake --preset fuzz && cmake --build build-fuzz
#     build-fuzz/fuzz/fuzz_json -max_total_time=60 NEW_FINDINGS_DIR tests/fuzz/corpus/json
#
# tests/fuzz/run runs all of them, one after the other. The preset's sanitizers apply to the targets as to the rest.
if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "LEDGERMQ_FUZZ needs clang: cmake --preset fuzz")
endif()
# The decoders must be built with coverage for the fuzzer to see its way.
target_compile_options(ledgermq_proto PRIVATE -fsanitize=fuzzer-no-link)
target_compile_options(ledgermq_client_objects PRIVATE -fsanitize=fuzzer-no-link)
file(GLOB FUZZ_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_*.c)
set(FUZZ_TARGETS)
foreach(FILE ${FUZZ_SOURCES})
  get_filename_component(NAME ${FILE} NAME_WE)
  add_executable(${NAME} ${FILE})
  target_compile_options(${NAME} PRIVATE -fsanitize=fuzzer)
  target_link_options(${NAME} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${NAME} PRIVATE ledgermq_client ledgermq_proto)
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  list(APPEND FUZZ_TARGETS ${NAME})
endforeach()
# Of the members' protocol just the decoder.
target_sources(fuzz_peer_message PRIVATE ${CMAKE_SOURCE_DIR}/dledger/peer_message.c ${CMAKE_SOURCE_DIR}/dledger/peer_version.c)
add_custom_target(fuzz_targets DEPENDS ${FUZZ_TARGETS})
