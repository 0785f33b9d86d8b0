ebb_test(test_tools
  SOURCES io/safetensors_files.cpp model_zoo/hf_folder.cpp tools/run_ebb.cpp tools/test_batches.cpp tools/test_command_line.cpp tools/test_learning_rate.cpp
    tools/test_machine.cpp tools/test_machine_rates.cpp tools/test_model_folders.cpp tools/test_plan.cpp tools/test_profile.cpp tools/test_progress.cpp tools/test_run_log.cpp tools/test_signals.cpp tools/test_sizes.cpp
    tools/test_train_options.cpp tools/test_trial.cpp
  LIBS ebb_tools)
target_compile_definitions(test_tools PRIVATE EBB_BINARY="$<TARGET_FILE:ebb>" EBB_VERSION="${PROJECT_VERSION}"
  EBB_FIXTURES="${PROJECT_SOURCE_DIR}/tests/fixtures")
add_dependencies(test_tools ebb)
