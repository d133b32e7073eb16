// What a fault of the processor within a launch means, said before the process ends of it.
#pragma once

#include <csignal>

namespace ridge::emulate {

// While it lives, SIGSEGV and SIGBUS print what the running thread did, then take their usual course.
class FaultMessages {
  public:
    FaultMessages();
    ~FaultMessages();
    FaultMessages(const FaultMessages &) = delete;
    FaultMessages &operator=(const FaultMessages &) = delete;

  private:
    stack_t stack_;
    bool own_stack_ = false;
};

}  // namespace ridge::emulate
