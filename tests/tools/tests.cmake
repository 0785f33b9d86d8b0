# Not under ThreadSanitizer, because test_program_races runs the same threads.
ebb_test(test_tools
  SOURCES tools/test_batches.cpp tools/test_command_line.cpp tools/test_config_file.cpp tools/test_config_text.cpp
    tools/test_convert.cpp tools/test_hub_cache.cpp tools/test_refusals.cpp tools/test_inference.cpp
    tools/test_learning_rate.cpp tools/test_machine.cpp tools/test_model_folders.cpp tools/test_option_flags.cpp
    tools/test_printable.cpp tools/test_profile.cpp tools/test_progress.cpp tools/test_rank_cores.cpp tools/test_run_data.cpp tools/test_run_log.cpp tools/test_sizes.cpp
    tools/test_train_options.cpp
  LIBS test_support ebb_tools NOT_TSAN)
# They plan many times, which takes minutes under a sanitizer. test_trainer and test_views plan there, too.
ebb_test(test_planning
  SOURCES tools/test_inference_limits.cpp tools/test_machine_files.cpp tools/test_machine_rates.cpp tools/test_outdated_rates.cpp
    tools/test_plan.cpp tools/test_plan_ranks.cpp tools/test_plan_sweep.cpp tools/test_plan_advice.cpp
  LIBS test_support ebb_tools NOT_SANITIZED)
# The output of a run, and its warnings and advice. They have no threads of their own.
ebb_test(test_views
  SOURCES device/counting_new.cpp tools/test_device_warnings.cpp tools/test_live_view.cpp tools/test_advice.cpp
    tools/test_report_page.cpp tools/test_spent_time.cpp tools/test_step_names.cpp tools/test_stop_text.cpp
  LIBS test_support ebb_tools NOT_TSAN)
# The system delivers a signal to any thread that does not block it, so this program must have no threads of other tests.
ebb_test(test_signals SOURCES tools/test_signals.cpp LIBS test_support ebb_tools)
if(EBB_SANITIZE MATCHES thread)
  ebb_test(test_program_races SOURCES tools/test_program_races.cpp LIBS test_support)
endif()
# Under ThreadSanitizer test_checkpoint, test_rank_saves and test_program_races run the same threads.
ebb_test(test_checkpoints SOURCES tools/test_checkpoints.cpp tools/test_full_disk.cpp
  tools/test_committed_checkpoint.cpp tools/test_killed.cpp tools/test_old_checkpoints.cpp LIBS test_support ebb_tools NOT_TSAN)
ebb_test(test_rank_runs SOURCES tools/test_rank_agreement.cpp tools/test_rank_reports.cpp tools/test_rank_runs.cpp LIBS test_support ebb_tools NOT_TSAN)
ebb_test(test_rank_saves SOURCES tools/test_rank_saves.cpp LIBS test_support ebb_tools)
if(EBB_SANITIZE MATCHES thread)
  set_property(TARGET test_rank_saves PROPERTY EBB_TEST_ARGUMENTS "--gtest_filter=*ClippedRankSaves*")  # the others have one thread
endif()
# Killed programs report nothing to a sanitizer; test_rank_runs runs the same code there.
ebb_test(test_rank_faults SOURCES tools/test_rank_faults.cpp LIBS test_support ebb_tools NOT_SANITIZED)
ebb_test(test_user_files SOURCES tools/test_user_files.cpp LIBS test_support ebb_tools NOT_TSAN)
ebb_test(test_labels SOURCES tools/test_labels.cpp LIBS test_support ebb_tools NOT_TSAN)
ebb_test(test_killed_slow SOURCES tools/test_killed_slow.cpp LIBS test_support ebb_tools SLOW)
target_compile_definitions(test_tools PRIVATE EBB_VERSION="${PROJECT_VERSION}")

# Scripts in Python are the same under every sanitizer.
if(NOT EBB_SANITIZE)
  find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
  add_test(NAME test_log_to COMMAND Python3::Interpreter ${CMAKE_CURRENT_LIST_DIR}/test_log_to.py $<TARGET_FILE:ebb>)
  ebb_test_properties(test_log_to fast)
  add_test(NAME test_script_errors COMMAND Python3::Interpreter ${CMAKE_CURRENT_LIST_DIR}/test_script_errors.py)
  ebb_test_properties(test_script_errors fast)
  # Reports in a browser. Is reported as skipped where there is no Chromium.
  add_test(NAME test_pages COMMAND Python3::Interpreter ${CMAKE_CURRENT_LIST_DIR}/test_pages.py $<TARGET_FILE:ebb>)
  ebb_test_properties(test_pages fast)
  set_tests_properties(test_pages PROPERTIES SKIP_RETURN_CODE 77)
  # The manual page and the shell completions.
  add_test(NAME test_make_texts COMMAND Python3::Interpreter ${CMAKE_CURRENT_LIST_DIR}/test_make_texts.py $<TARGET_FILE:ebb>)
  ebb_test_properties(test_make_texts fast)
  # Compares the bytes of one case; its times are not checked.
  add_test(NAME test_plan_against_runs COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/bench/plan_against_runs $<TARGET_FILE:ebb>
    --first 6 --cases 1 --tries 1)
  ebb_test_properties(test_plan_against_runs fast)
  # Compares three plans with themselves.
  add_test(NAME test_compare_plans COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/bench/compare_plans $<TARGET_FILE:ebb>
    $<TARGET_FILE:ebb> --every 100)
  set_tests_properties(test_compare_plans PROPERTIES PASS_REGULAR_EXPRESSION "3 plans: mean 1.0000; 0 more than 0.3 % faster, 0 slower")
  ebb_test_properties(test_compare_plans fast)
  # The use of evaluations, and samples of text.
  add_test(NAME test_evaluations COMMAND Python3::Interpreter ${CMAKE_CURRENT_LIST_DIR}/test_evaluations.py $<TARGET_FILE:ebb>)
  ebb_test_properties(test_evaluations fast)
  # Are reported as skipped if the Python of EBB_PYTHON has no transformers. Tests that do not need it run anyway.
  foreach(name test_tokenize test_tokenize_inputs test_tokenize_outputs)
    add_test(NAME ${name} COMMAND sh -c [[exec "${EBB_PYTHON:-python3}" "$@"]] sh ${CMAKE_CURRENT_LIST_DIR}/${name}.py
      $<TARGET_FILE:ebb>)
    ebb_test_properties(${name} fast)
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
  endforeach()
  # The same, if it has no tokenizers.
  add_test(NAME test_text COMMAND sh -c [[exec "${EBB_PYTHON:-python3}" "$@"]] sh ${CMAKE_CURRENT_LIST_DIR}/test_text.py
    $<TARGET_FILE:ebb>)
  ebb_test_properties(test_text fast)
  set_tests_properties(test_text PROPERTIES SKIP_RETURN_CODE 77)
endif()
