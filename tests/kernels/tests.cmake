# The same tests run on each device that computes: the host, a GPU, and the emulated GPU, whose kernels are compiled from the
# same source. Their objects are compiled once. Without a GPU the tests are skipped; with EBB_REQUIRE_CUDA=1 they fail.
set(on_devices harness.cpp reference.cpp bit_cases.cpp test_linear.cpp test_linear_activation.cpp test_norm.cpp test_rms_norm.cpp test_rotary.cpp test_swiglu.cpp
  test_elementwise.cpp test_embedding.cpp test_attention.cpp test_attention_cached.cpp test_dropout.cpp test_loss.cpp test_multiply.cpp test_softmax.cpp test_squared_error.cpp test_own_kernel.cpp test_gradient.cpp test_ordered_sum.cpp test_adamw.cpp test_contracts.cpp)
list(TRANSFORM on_devices PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
# The references run on one thread and get what other threads wrote from the harness, which ThreadSanitizer checks.
if(EBB_SANITIZE MATCHES thread)
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/reference.cpp PROPERTIES COMPILE_OPTIONS -fno-sanitize=thread)
endif()
ebb_test_objects(kernel_tests SOURCES ${on_devices} LIBS Eigen3::Eigen COMPUTES)
ebb_test_objects(gpu_kernel_tests
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/harness_cuda.cpp ${CMAKE_CURRENT_LIST_DIR}/test_gpu_bits.cpp ${CMAKE_CURRENT_LIST_DIR}/test_padding.cpp ${CMAKE_CURRENT_LIST_DIR}/test_attention_library.cpp)

ebb_test(test_kernels
  SOURCES $<TARGET_OBJECTS:kernel_tests> ${CMAKE_CURRENT_LIST_DIR}/harness_host.cpp ${CMAKE_CURRENT_LIST_DIR}/test_same_bits.cpp
  LIBS ebb_host_kernels ebb_cpu_adam)
ebb_test(test_kernels_cuda
  SOURCES $<TARGET_OBJECTS:kernel_tests> $<TARGET_OBJECTS:gpu_kernel_tests>
  LIBS ebb_device ebb_cpu_adam)
# The kernels of an example, compiled for the emulated GPU as those of cuda/kernels/.
set(example ${PROJECT_SOURCE_DIR}/examples/embed)
set_source_files_properties(${example}/swish.cu PROPERTIES LANGUAGE CXX)
# swish.cu has functions with the names of those in swish.cpp. In an included file, g++ warns about the stream of harness_host.cpp.
set_source_files_properties(${example}/swish.cu ${CMAKE_CURRENT_LIST_DIR}/harness_host.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
ebb_test(test_kernels_emulated
  SOURCES $<TARGET_OBJECTS:kernel_tests> $<TARGET_OBJECTS:gpu_kernel_tests>
    ${CMAKE_CURRENT_LIST_DIR}/test_emulated_order.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_example_kernels.cpp ${example}/swish.cpp ${example}/swish.cu
    ${PROJECT_SOURCE_DIR}/tests/cuda_emulation/with_attention_library.cpp ${PROJECT_SOURCE_DIR}/tests/cuda_emulation/test_epilogues.cpp ${PROJECT_SOURCE_DIR}/tests/cuda_emulation/test_kernel_faults.cpp
  LIBS ebb_cuda_emulated ebb_autograd ebb_device ebb_cpu_adam)
target_compile_definitions(test_kernels_emulated PRIVATE EMBED_CUDA)
if(EBB_SANITIZE MATCHES thread)
  # The types are instances of the same kernels, with the same threads and barriers, so bf16 stands for all. Every kernel runs
  # for this check at small sizes, and not again to compare its bits: these took two thirds of ten minutes. The loops of the
  # emulated attention library are not Ebb's. ThreadSanitizer does not see how an exception of one emulated thread is destroyed
  # by another one. Of the longest rows, only the runs that store results are left.
  string(JOIN ":" left_out *fp16* */fp32* *GpuBits.AreTheSame* *EmulatedOrder.DoesNotMatter* *_8200_add *_4100_3_add *AttentionLibraryTest*
    EmulatedFaults.*ThatIsNotAlignedIsAnError *CrossEntropy.InSlicesOfClasses/*_5_15
    */DeviceAdamW.HasTheBitsOfTheCpu/* *CrossEntropy.InSlicesOfClasses/*_33_257 *CrossEntropy.InSlicesOfClasses/*_7_17
    *CrossEntropy.InSlicesOfClasses/*_9_16 OwnAttention.LoadsOfMatricesGiveTheSameBits *Embedding.Backward/*_70000
    *OrderedSum.*/*_65* AttentionTest.IsAsExactAsPyTorch)
  set_property(TARGET test_kernels_emulated PROPERTY EBB_TEST_ARGUMENTS "--gtest_filter=-${left_out}")
elseif(EBB_SANITIZE)
  # fp16 has the size of bf16, so its kernels access the same addresses.
  set_property(TARGET test_kernels_emulated PROPERTY EBB_TEST_ARGUMENTS "--gtest_filter=-*fp16*:*GpuBits.AreTheSameAgain*")
endif()
if(EBB_SANITIZE MATCHES thread)
  set_property(TARGET test_kernels PROPERTY EBB_TEST_ARGUMENTS "--gtest_filter=-*fp16*") # the same threads as bf16
endif()
set_tests_properties(test_kernels_cuda PROPERTIES SKIP_REGULAR_EXPRESSION "harness_cuda.cpp:[0-9]+: Skipped")
