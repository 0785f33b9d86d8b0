// A primitive that Ebb does not have: Swish with a learned slope for each channel.
//
//   y = x * sigmoid(slope * x)        Ramachandran et al., "Searching for Activation Functions",
//   2017
#pragma once

#include <ebb/ebb.h>

/// x (N, C) fp32, slope (C) fp32 -> (N, C) fp32.
ebb::Variable swish(ebb::Tape& tape, ebb::Variable x, ebb::ParameterId slope);
