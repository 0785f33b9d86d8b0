# Comparisons with PyTorch. They are not run with ThreadSanitizer, because the tests of the trainer use the same threads.
ebb_test(test_gpt2
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_gpt2.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_gpt2_bf16.cpp ${CMAKE_CURRENT_LIST_DIR}/test_gpt2_model.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_mlp.cpp
  LIBS test_support Eigen3::Eigen NOT_TSAN)

ebb_test(test_replay SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_replay.cpp LIBS ebb_model_zoo COMPUTES NOT_TSAN)

# Not with ThreadSanitizer, because test_inference uses the same threads.
ebb_test(test_generation SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_generation.cpp LIBS ebb_model_zoo NOT_TSAN)

ebb_test(test_hugging_face
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_hf_config.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_hf_folders.cpp ${CMAKE_CURRENT_LIST_DIR}/test_hf_tensors.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_hf_names.cpp ${CMAKE_CURRENT_LIST_DIR}/test_hf_rope.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_hf_transformers.cpp ${CMAKE_CURRENT_LIST_DIR}/test_hf_generation.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_model_sizes.cpp
  LIBS test_support NOT_TSAN)

ebb_test(test_architectures
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_transformers.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_architectures.cpp ${CMAKE_CURRENT_LIST_DIR}/test_gradients.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_rotary_frequencies.cpp
  LIBS test_support NOT_TSAN)
