ebb_test(test_io
  SOURCES io/test_annotations.cpp io/test_data_files.cpp io/test_input_file.cpp io/test_new_file.cpp io/test_safetensors.cpp
    io/test_safetensors_folder.cpp io/test_safetensors_refusals.cpp io/test_safetensors_writer.cpp
    io/test_sample_order.cpp io/test_state_file.cpp io/test_token_data.cpp io/test_token_record.cpp
  LIBS test_support)
