ebb_test(test_io
  SOURCES io/test_random.cpp io/test_sample_order.cpp io/test_token_data.cpp
  LIBS ebb_io)
