# The same tests, with the emulated CUDA backend where a GPU's would be, and tests of the emulation itself.
set(on_devices counting_new.cpp test_device_memory.cpp test_races.cpp test_stream.cpp test_stream_errors.cpp)
list(TRANSFORM on_devices PREPEND ${PROJECT_SOURCE_DIR}/tests/device/)
ebb_test(test_device_emulated SOURCES ${on_devices} LIBS ebb_cuda_emulated ebb_device)
ebb_test(test_training_emulated
  SOURCES ${PROJECT_SOURCE_DIR}/tests/trainer/cases.cpp ${PROJECT_SOURCE_DIR}/tests/cuda_emulation/test_training.cpp
  LIBS ebb_cuda_emulated ebb_model_zoo)
target_sources(test_training_emulated PRIVATE ${PROJECT_SOURCE_DIR}/tests/cuda_emulation/test_home_memory.cpp)
