# The tests of the GPU, with the emulated CUDA backend, and tests of the emulation itself.
set(dir ${CMAKE_CURRENT_SOURCE_DIR}/cuda_emulation)
ebb_test(test_device_emulated
  SOURCES $<TARGET_OBJECTS:device_tests> ${dir}/test_attention_parts.cpp ${dir}/test_backend.cpp
          ${dir}/test_full_queue.cpp ${dir}/test_gpu_choice.cpp
  LIBS ebb_cuda_emulated ebb_device)

# The same backend with a planted mistake, which hangs under a sanitizer too.
ebb_test(test_unbounded_emulated
  SOURCES ${dir}/test_unbounded.cpp ${dir}/unbounded_in_flight.cpp
          $<FILTER:$<TARGET_OBJECTS:ebb_cuda_emulated>,EXCLUDE,/cuda/in_flight>
  LIBS ebb_device NOT_SANITIZED)
target_include_directories(test_unbounded_emulated BEFORE PRIVATE ${dir}/include)

# Training on a GPU (these tests are skipped without a GPU, and fail with EBB_REQUIRE_CUDA=1), and on the emulated GPU.
# Under ThreadSanitizer each thread of a block is a fiber, and a step takes minutes. So a separate program runs only a
# few small steps there.
ebb_test_objects(gpu_training
  SOURCES trainer/test_gpu_training.cpp trainer/test_gpu_models.cpp trainer/test_gpu_regression.cpp LIBS test_support)
ebb_test(test_training_cuda SOURCES $<TARGET_OBJECTS:gpu_training> trainer/on_gpu.cpp LIBS test_support NOT_TSAN)
set_tests_properties(test_training_cuda PROPERTIES SKIP_REGULAR_EXPRESSION "on_gpu.cpp:[0-9]+: Skipped")
ebb_test(test_training_emulated
  SOURCES $<TARGET_OBJECTS:gpu_training> ${dir}/on_emulated_gpu.cpp ${dir}/test_training_attention.cpp
          ${dir}/test_training_faults.cpp ${dir}/test_training_padding.cpp
  LIBS ebb_cuda_emulated test_support NOT_TSAN)
if(EBB_SANITIZE MATCHES address)
  # One of four heads, of three types and of four models of a family stands for all, and the calls of CUDA are refused without a
  # sanitizer: a case takes half a minute there.
  string(JOIN ":" slow Heads/PaddedLogits.*fp32* Heads/PaddedLogits.*alone *GpuRegression*fp32 *GpuRegression*fp16
    *TrainLikePyTorch/llama_llama3 *TrainLikePyTorch/llama_mistral *TrainLikePyTorch/llama_qwen3 EmulatedStep.CallsOfCudaCanBeRefused)
  set_property(TARGET test_training_emulated PROPERTY EBB_TEST_ARGUMENTS "--gtest_filter=-${slow}")
endif()
ebb_test(test_training_refusals_emulated
  SOURCES ${dir}/on_emulated_gpu.cpp ${dir}/test_training_refusals.cpp LIBS ebb_cuda_emulated test_support SLOW)
ebb_test(test_training_races_emulated
  SOURCES ${dir}/on_emulated_gpu.cpp ${dir}/test_training_races.cpp LIBS ebb_cuda_emulated test_support)
ebb_test(test_home_memory_emulated
  SOURCES trainer/test_device_adder.cpp trainer/test_peer_memory.cpp trainer/test_pinned_limit.cpp ${dir}/test_home_memory.cpp ${dir}/test_staging_ring.cpp
          ${dir}/test_profiler_ranges.cpp
  LIBS ebb_cuda_emulated test_support)

# The tools on the emulated GPU. Copies of tens of MiB take too long there under a sanitizer.
if(NOT EBB_SANITIZE)
  ebb_test(test_gpu_setup_emulated SOURCES tools/test_gpu_setup_emulated.cpp tools/test_notices_emulated.cpp
    LIBS ebb_cuda_emulated ebb_tools test_support)
endif()

# Uses the toolkit's own header and no emulation. Does not load cuBLASLt and needs no GPU.
if(EBB_WITH_CUDA)
  ebb_test(test_cublas_library SOURCES ${dir}/test_cublas_library.cpp LIBS ebb_device)
  target_include_directories(test_cublas_library SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
endif()

# Uses the real cuDNN without a GPU. Not run under sanitizers, which do not support the library that compiles its
# kernels.
get_property(with_cudnn GLOBAL PROPERTY EBB_WITH_CUDNN)
if(with_cudnn AND NOT EBB_SANITIZE)
  add_library(cudnn_stand_in_driver SHARED ${dir}/stand_in_driver.cpp)
  set_target_properties(cudnn_stand_in_driver PROPERTIES
    OUTPUT_NAME cuda SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/stand_in_driver)
  ebb_test(test_cudnn_plans SOURCES ${dir}/test_cudnn_plans.cpp LIBS ebb_device)
  add_dependencies(test_cudnn_plans cudnn_stand_in_driver)
  target_include_directories(test_cudnn_plans SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${EBB_CUDNN_INCLUDE})
  set_tests_properties(test_cudnn_plans PROPERTIES
    ENVIRONMENT_MODIFICATION "LD_LIBRARY_PATH=path_list_prepend:${CMAKE_CURRENT_BINARY_DIR}/stand_in_driver"
    SKIP_REGULAR_EXPRESSION "test_cudnn_plans.cpp:[0-9]+: Skipped")
endif()
