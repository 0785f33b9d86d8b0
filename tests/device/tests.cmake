# These tests run on the host, on a GPU if there is one, and on the emulated GPU. Their objects are compiled once.
set(on_devices counting_new.cpp test_device_memory.cpp test_races.cpp test_stream.cpp test_stream_errors.cpp)
list(TRANSFORM on_devices PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
ebb_test_objects(device_tests SOURCES ${on_devices} LIBS ebb_device)
set(sources test_arithmetic.cpp test_cuda_probe.cpp test_f16.cpp test_host_blocks.cpp test_host_device.cpp test_host_event.cpp
  test_host_link.cpp test_emulated_compute.cpp test_normal_numbers.cpp test_random.cpp test_sim_device.cpp test_staging.cpp)
list(TRANSFORM sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
ebb_test(test_device SOURCES ${sources} $<TARGET_OBJECTS:device_tests> LIBS ebb_device)
