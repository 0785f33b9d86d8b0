// All of Ebb for a program that links it: find_package(Ebb), Ebb::ebb, and this header.
//
//   scheduler/run/trainer.h     prepare() and Trainer: where to begin
//   scheduler/run/inference.h   the forward alone; model_zoo/generation.h: generates text with it
//   autograd/model.h       a model: its parameters and its layers
//   autograd/primitives.h  what a model is composed of; autograd/tape.h: how to write one more,
//   with
//                          device/own_kernel.h, system/parallel_loop.h, autograd/gradient_check.h
//   model_zoo/, io/         ready models and token data
//   device/, chunk/, cpu_adam/, the rest of scheduler/    the parts, for those who use them alone
#pragma once

#include <string_view>

#include "autograd/gradient_check.h"
#include "autograd/model.h"
#include "autograd/primitives.h"
#include "chunk/ledger.h"
#include "comm/process_ranks.h"
#include "comm/thread_ranks.h"
#include "cpu_adam/adamw.h"
#include "device/device.h"
#include "device/errors.h"
#include "device/kernel_arguments.h"
#include "device/own_kernel.h"
#include "io/npy_file.h"
#include "io/safetensors_folder_writer.h"
#include "io/sample_order.h"
#include "io/token_data.h"
#include "model_zoo/architecture.h"
#include "model_zoo/bert.h"
#include "model_zoo/checkpoint.h"
#include "model_zoo/generation.h"
#include "model_zoo/gpt2.h"
#include "model_zoo/hugging_face_config.h"
#include "model_zoo/hugging_face_weights.h"
#include "model_zoo/llama.h"
#include "model_zoo/mlp.h"
#include "model_zoo/model_files.h"
#include "model_zoo/presets.h"
#include "scheduler/run/inference.h"
#include "scheduler/run/learning_rate.h"
#include "scheduler/run/trainer.h"
#include "system/parallel_loop.h"

namespace ebb {

/// The version of the library that the program runs with: "0.1.0".
std::string_view version();

}  // namespace ebb
