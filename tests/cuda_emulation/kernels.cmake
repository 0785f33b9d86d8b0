# The kernels of the GPU, compiled for the host into ebb_cuda_emulated, and the code that runs them.
file(GLOB kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cuda/kernels/*.cu)
set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS -Wno-unknown-pragmas)
if(EBB_SANITIZE MATCHES thread)
  # These files announce fibers to ThreadSanitizer. It checks the kernels, but not the switches between stacks.
  set_source_files_properties(fiber.cpp grid.cpp PROPERTIES
    COMPILE_OPTIONS "-fno-sanitize=thread;-DEBB_TELL_THREAD_SANITIZER")
endif()
target_sources(ebb_cuda_emulated PRIVATE ${kernels} fiber.cpp grid.cpp os_threads.cpp plain_attention.cpp plain_products.cpp)
