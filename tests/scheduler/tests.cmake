include(${CMAKE_CURRENT_LIST_DIR}/plan_tests.cmake)
