file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/gpu/*.cpp)
ebb_bench(bench_gpu SOURCES ${sources} LIBS ebb_tools ebb_model_zoo ebb_scheduler ebb_device fmt::fmt)
