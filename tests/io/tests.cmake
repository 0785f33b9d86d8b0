ebb_test(test_io
  SOURCES io/test_annotations.cpp io/test_input_file.cpp io/test_new_file.cpp io/test_random.cpp io/test_safetensors.cpp
    io/test_safetensors_folder.cpp io/test_safetensors_refusals.cpp io/test_safetensors_writer.cpp
    io/test_sample_order.cpp io/test_state_file.cpp io/test_token_data.cpp
  LIBS test_support)

# The fuzz target runs for a few seconds with changed files of the corpus. With clang there is also a target with libFuzzer.
set(fuzz_corpus ${CMAKE_CURRENT_LIST_DIR}/fuzz_corpus)
add_executable(test_fuzz_safetensors io/fuzz_mutations.cpp io/fuzz_safetensors.cpp)
target_link_libraries(test_fuzz_safetensors PRIVATE ebb_io)
add_test(NAME test_fuzz_safetensors COMMAND test_fuzz_safetensors ${fuzz_corpus})
ebb_test_properties(test_fuzz_safetensors fast)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  set(fuzz_flags -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined)
  add_executable(fuzz_safetensors EXCLUDE_FROM_ALL io/fuzz_safetensors.cpp ${PROJECT_SOURCE_DIR}/io/safetensors_header.cpp
    ${PROJECT_SOURCE_DIR}/io/foreign_content.cpp
    ${PROJECT_SOURCE_DIR}/io/stored_tensor.cpp ${PROJECT_SOURCE_DIR}/device/errors.cpp)
  target_compile_options(fuzz_safetensors PRIVATE ${fuzz_flags})
  target_link_options(fuzz_safetensors PRIVATE ${fuzz_flags})
  target_link_libraries(fuzz_safetensors PRIVATE ebb_options fmt::fmt nlohmann_json::nlohmann_json)
endif()
