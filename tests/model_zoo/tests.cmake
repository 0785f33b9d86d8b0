# Numbers against PyTorch: under ThreadSanitizer the trainer's own tests have the same threads.
ebb_test(test_gpt2
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/reference_run.cpp ${CMAKE_CURRENT_LIST_DIR}/test_gpt2.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_gpt2_bf16.cpp ${CMAKE_CURRENT_LIST_DIR}/test_gpt2_model.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_mlp.cpp
  LIBS ebb_model_zoo nlohmann_json::nlohmann_json fmt::fmt NOT_TSAN)
target_compile_definitions(test_gpt2 PRIVATE EBB_FIXTURES="${PROJECT_SOURCE_DIR}/tests/fixtures")

# Under ThreadSanitizer test_inference has the same threads.
ebb_test(test_generation SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_generation.cpp LIBS ebb_model_zoo NOT_TSAN)

ebb_test(test_hugging_face
  SOURCES io/safetensors_files.cpp ${CMAKE_CURRENT_LIST_DIR}/hf_folder.cpp ${CMAKE_CURRENT_LIST_DIR}/python.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_hf_config.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_hf_folders.cpp ${CMAKE_CURRENT_LIST_DIR}/test_hf_tensors.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_hf_transformers.cpp ${CMAKE_CURRENT_LIST_DIR}/test_hf_generation.cpp
  LIBS ebb_model_zoo ebb_io nlohmann_json::nlohmann_json fmt::fmt NOT_TSAN)
target_compile_definitions(test_hugging_face PRIVATE EBB_FIXTURES="${PROJECT_SOURCE_DIR}/tests/fixtures"
  EBB_SOURCE_DIR="${PROJECT_SOURCE_DIR}")

ebb_test(test_architectures
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/reference_run.cpp ${CMAKE_CURRENT_LIST_DIR}/test_transformers.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_architectures.cpp ${CMAKE_CURRENT_LIST_DIR}/test_rotary_frequencies.cpp
  LIBS ebb_model_zoo nlohmann_json::nlohmann_json fmt::fmt NOT_TSAN)
target_compile_definitions(test_architectures PRIVATE EBB_FIXTURES="${PROJECT_SOURCE_DIR}/tests/fixtures")
