// A mark in a stream, and the time between two.
#pragma once

#include <utility>

#include "backend/simt/driver.h"

namespace ridge::simt {

class Event {
  public:
    explicit Event(const Driver &driver) : driver_(&driver) {
        check(driver, driver.create_event(&handle_), "making an event");
    }
    ~Event() {
        if (handle_ != nullptr) driver_->destroy_event(handle_);
    }
    Event(Event &&o) noexcept : driver_(o.driver_), handle_(std::exchange(o.handle_, nullptr)) {}
    Event(const Event &) = delete;
    Event &operator=(const Event &) = delete;
    Event &operator=(Event &&) = delete;

    void record(Handle stream) { check(*driver_, driver_->record(handle_, stream), "recording an event"); }
    // Until what was submitted before it is over.
    void wait() const { check(*driver_, driver_->synchronize_event(handle_), "waiting for an event"); }

    // On the device. Both were recorded and are over.
    friend double seconds_between(const Event &first, const Event &last) {
        float ms = 0;
        check(*first.driver_, first.driver_->elapsed(&ms, first.handle_, last.handle_), "reading an event");
        return ms * 1e-3;
    }

  private:
    const Driver *driver_;
    Handle handle_ = nullptr;
};

}  // namespace ridge::simt
