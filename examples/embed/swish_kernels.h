// The kernels of swish.h: one struct for each, whose fields are its arguments.
//
// swish.cpp has their checks and their code for the host, swish.cu the code for a GPU. All tensors
// are fp32: y, x, dy and dx (N, C), slope and dslope (C).
#pragma once

#include <device/kernel_arguments.h>
#include <device/own_kernel.h>
#include <device/tensor.h>

/// y = x * sigmoid(slope * x)
struct SwishForward {
  ebb::Tensor y, x, slope;

  ebb::Cost check() const;
  void run(ebb::ThreadTeam& team) const;
#ifdef EMBED_CUDA
  void run(ebb::GpuStream stream) const;
#endif
};

/// dx = or += dy * the derivative of y with respect to x
struct SwishBackwardInput {
  ebb::Tensor dx, dy, x, slope;
  ebb::Write write;

  ebb::Cost check() const;
  void run(ebb::ThreadTeam& team) const;
#ifdef EMBED_CUDA
  void run(ebb::GpuStream stream) const;
#endif
};

/// dslope = or += the sum over all rows of dy * the derivative of y with respect to the slope
struct SwishBackwardSlope {
  ebb::Tensor dslope, dy, x, slope;
  ebb::Write write;

  ebb::Cost check() const;
  void run(ebb::ThreadTeam& team) const;
#ifdef EMBED_CUDA
  void run(ebb::GpuStream stream) const;
#endif
};
