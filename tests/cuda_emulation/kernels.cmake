# The kernels of the GPU, compiled for the host into ebb_cuda_emulated, and the code that runs them.
file(GLOB kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cuda/kernels/*.cu)
set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS -Wno-unknown-pragmas)
if(EBB_SANITIZE)
  # The innermost code of the emulation, which accesses only memory of its own. The sanitizers check the kernels, and are told of
  # the switches between stacks.
  set(unchecked -O3 -fno-sanitize=all)
  set(switches -O3)
  if(EBB_SANITIZE MATCHES thread)
    list(APPEND unchecked -DEBB_TELL_THREAD_SANITIZER)
    set(switches ${unchecked})
  endif()
  set_source_files_properties(grid.cpp sums_of_products.cpp PROPERTIES COMPILE_OPTIONS "${unchecked}")
  set_source_files_properties(fiber.cpp PROPERTIES COMPILE_OPTIONS "${switches}")
endif()
target_sources(ebb_cuda_emulated PRIVATE ${kernels} fiber.cpp grid.cpp os_threads.cpp plain_attention.cpp plain_products.cpp
  sums_of_products.cpp)
