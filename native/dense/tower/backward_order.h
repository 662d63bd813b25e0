// The tasks of a backward pass in the order in which threads take them, and what each has to wait for.
//
// The batch is processed in steps of some rows: each step takes blocks of rows through the layers, then computes pieces
// of the weight gradients over those rows. The blocks of a step come before the pieces of the previous step, so the
// work a task depends on started long ago and waiting is rare. Gradients of two steps are held, in alternating buffers.
#pragma once

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace elasticctr::dense {

class BackwardOrder {
 public:
  BackwardOrder(size_t steps, size_t blocks, size_t pieces)
      : steps_(steps),
        blocks_(blocks),
        pieces_(pieces),
        blocks_done_(steps),
        pieces_done_(steps),
        piece_steps_(pieces) {}

  size_t tasks() const { return steps_ * (blocks_ + pieces_); }

  // One task. If it ends without Finish, all later tasks give up.
  class Turn {
   public:
    Turn(BackwardOrder& order, size_t task) : order_(order) {
      // Blocks of step 0, then for each step the blocks of the next step and its own pieces; the last step has no next.
      if (task < order.blocks_) {
        step = 0, index = task, is_block = true;
        return;
      }
      task -= order.blocks_;
      const size_t round = order.blocks_ + order.pieces_;
      step = task / round < order.steps_ - 1 ? task / round : order.steps_ - 1;
      index = task - step * round;
      is_block = step + 1 < order.steps_ && index < order.blocks_;
      if (is_block) {
        ++step;
      } else if (step + 1 < order.steps_) {
        index -= order.blocks_;
      }
    }
    ~Turn() {
      if (!is_finished_) order_.has_failed_.store(true);
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    // Blocks until the task's inputs are ready; false if they never will be.
    bool Wait() const {
      for (int spin = 0; !IsReady(); ++spin) {
        if (order_.has_failed_.load()) return false;
        if (spin >= kSpins) std::this_thread::yield();
      }
      return true;
    }

    void Finish() const {
      if (is_block) {
        order_.blocks_done_[step].fetch_add(1, std::memory_order_release);
      } else {
        order_.piece_steps_[index].store(step + 1, std::memory_order_release);
        order_.pieces_done_[step].fetch_add(1, std::memory_order_release);
      }
      is_finished_ = true;
    }

    size_t step;
    size_t index;  // of the block or piece within the step
    bool is_block;

   private:
    static constexpr int kSpins = 10000;

    bool IsReady() const {
      if (is_block) {  // wait for the pieces that read these buffers before
        return step < 2 || order_.pieces_done_[step - 2].load(std::memory_order_acquire) == order_.pieces_;
      }
      return order_.blocks_done_[step].load(std::memory_order_acquire) == order_.blocks_ &&
             order_.piece_steps_[index].load(std::memory_order_acquire) == step;
    }

    BackwardOrder& order_;
    mutable bool is_finished_ = false;
  };

 private:
  const size_t steps_, blocks_, pieces_;
  std::vector<std::atomic<size_t>> blocks_done_, pieces_done_;  // of each step
  std::vector<std::atomic<size_t>> piece_steps_;                // steps each piece has summed
  std::atomic<bool> has_failed_{false};
};

}  // namespace elasticctr::dense
