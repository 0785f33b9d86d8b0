// How much other processes use the cores of this machine.
#pragma once

namespace ebb {

/// The processor time that other processes use from the construction on, as /proc/stat counts it.
class OtherLoad {
 public:
  OtherLoad();
  /// As a share of all cores of the machine; 0 where the system does not tell.
  double share() const;

 private:
  double busy_s_, own_s_, start_s_;
};

}  // namespace ebb
