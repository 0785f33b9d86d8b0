ebb_test(test_io
  SOURCES io/test_annotations.cpp io/test_data_files.cpp io/test_input_file.cpp io/test_new_file.cpp io/test_safetensors.cpp
    io/test_safetensors_folder.cpp io/test_safetensors_refusals.cpp io/test_sample_order.cpp io/test_state_file.cpp io/test_token_data.cpp io/test_token_record.cpp
  LIBS test_support NOT_TSAN)
# The only test of files with several threads.
ebb_test(test_safetensors_writer SOURCES io/test_safetensors_writer.cpp LIBS test_support)
