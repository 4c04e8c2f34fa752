// A program of Gloo (libgloo-dev) over its ibverbs transport: collective RANK RANKS FOLDER DEVICE INDEX, where INDEX is that of a GID. Sums
// and broadcasts of several sizes; prints "ok".
#include <gloo/allreduce.h>
#include <gloo/allreduce_ring.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

int main(int, char** words) {
  const int rank = std::atoi(words[1]), ranks = std::atoi(words[2]);
  gloo::transport::ibverbs::attr attr;
  attr.name = words[4];
  attr.port = 1;
  attr.index = std::atoi(words[5]);
  auto device = gloo::transport::ibverbs::CreateDevice(attr);
  gloo::rendezvous::FileStore store(words[3]);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);
  // Gloo aborts where a buffer ends before the completion of its last send: they stay.
  std::vector<std::vector<int>> buffers;
  std::vector<std::unique_ptr<gloo::Algorithm>> algorithms;
  for (const int count : {1, 1000, 1 << 20}) {
    buffers.emplace_back(count);
    auto& numbers = buffers.back();
    for (int i = 0; i < count; i++) numbers[i] = i * (rank + 1);
    algorithms.push_back(std::make_unique<gloo::AllreduceRing<int>>(context, std::vector<int*>{numbers.data()}, count));
    algorithms.back()->run();
    for (int i = 0; i < count; i++) {
      if (numbers[i] == i * ranks * (ranks + 1) / 2) continue;
      std::printf("sum %d of %d: %d\n", i, count, numbers[i]);
      return 1;
    }
    for (int i = 0; i < count; i++) numbers[i] = rank == 0 ? i ^ 5 : -1;
    algorithms.push_back(std::make_unique<gloo::BroadcastOneToAll<int>>(context, std::vector<int*>{numbers.data()}, count));
    algorithms.back()->run();
    for (int i = 0; i < count; i++) {
      if (numbers[i] == (i ^ 5)) continue;
      std::printf("broadcast %d of %d: %d\n", i, count, numbers[i]);
      return 1;
    }
  }
  algorithms.push_back(std::make_unique<gloo::BarrierAllToAll>(context));
  algorithms.back()->run();
  std::puts("ok");
  std::fflush(stdout);
  std::_Exit(0);
}
