// Exports of the addon.
#include "addon.h"

#include <time.h>

#include "capture.h"
#include "descriptors.h"
#include "doorbells.h"
#include "frame_socket.h"
#include "interface_watcher.h"
#include "layout.h"
#include "local_socket.h"
#include "process_memory.h"
#include "port.h"
#include "socket.h"
#include "xdp_port.h"

#define ROCE_QUOTED(text) #text
#define ROCE_TEXT(macro) ROCE_QUOTED(macro)

namespace roce {
namespace {

/// now(): CLOCK_MONOTONIC in microseconds.
Napi::Value now(const Napi::CallbackInfo& info) {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return Napi::Number::New(info.Env(), double(time.tv_sec) * 1e6 + double(time.tv_nsec) / 1e3);
}

struct NamedWord {
  const char* name;
  uint32_t value;
};

Napi::Object objectOf(Napi::Env env, std::initializer_list<NamedWord> words) {
  Napi::Object object = Napi::Object::New(env);
  for (const auto& [name, value] : words) object.Set(name, Napi::Number::New(env, value));
  return object;
}

/// layout: the numbers of layout.h under the names of batch.ts.
Napi::Object layout(Napi::Env env) {
  Napi::Object object = objectOf(env, {
                                          {"TX_HEADER_STRIDE", kTxHeaderStride},
                                          {"TX_SLOT_WORDS", tx::kSlotWords},
                                          {"FRAGMENT_WORDS", fragment::kWords},
                                          {"RX_SLOT_WORDS", rx::kSlotWords},
                                          {"COPY_WORDS", copy::kWords},
                                          {"CAPTURED_SLOT_WORDS", captured::kSlotWords},
                                          {"FRAME_SLOT_WORDS", frame::kSlotWords},
                                          {"NO_PEER", kNoPeer},
                                      });
  object.Set("Tx", objectOf(env, {{"HEADER_OFFSET", tx::headerOffset},
                                  {"HEADER_LENGTH", tx::headerLength},
                                  {"FRAGMENT_FIRST", tx::fragmentFirst},
                                  {"FRAGMENT_COUNT", tx::fragmentCount},
                                  {"PAYLOAD_LENGTH", tx::payloadLength},
                                  {"PAD", tx::pad},
                                  {"PEER", tx::peer},
                                  {"TRAFFIC_CLASS", tx::trafficClass},
                                  {"SOURCE_PORT", tx::sourcePort},
                                  {"QPN", tx::qpn},
                                  {"STATUS", tx::status},
                                  {"ENTRY", tx::entry},
                                  {"RUN", tx::run}}));
  object.Set("Fragment", objectOf(env, {{"REGION", fragment::region},
                                        {"OFFSET_LOW", fragment::offsetLow},
                                        {"OFFSET_HIGH", fragment::offsetHigh},
                                        {"LENGTH", fragment::length}}));
  object.Set("Rx", objectOf(env, {{"OFFSET", rx::offset},
                                  {"LENGTH", rx::length},
                                  {"PEER", rx::peer},
                                  {"LOCAL", rx::local},
                                  {"TRAFFIC_CLASS", rx::trafficClass},
                                  {"HOP_LIMIT", rx::hopLimit},
                                  {"VERDICT", rx::verdict},
                                  {"IP_ID", rx::ipId},
                                  {"SOURCE_PORT", rx::sourcePort},
                                  {"STAMP_LOW", rx::stampLow},
                                  {"STAMP_HIGH", rx::stampHigh},
                                  {"RUN", rx::run}}));
  object.Set("Icrc", objectOf(env, {{"OK", uint32_t(Verdict::ok)},
                                    {"BAD", uint32_t(Verdict::bad)},
                                    {"OUT_OF_WINDOW", uint32_t(Verdict::outOfWindow)}}));
  object.Set("Copy", objectOf(env, {{"SOURCE", copy::source},
                                    {"REGION", copy::region},
                                    {"OFFSET_LOW", copy::offsetLow},
                                    {"OFFSET_HIGH", copy::offsetHigh},
                                    {"LENGTH", copy::length}}));
  object.Set("Frame", objectOf(env, {{"OFFSET", frame::offset}, {"LENGTH", frame::length}}));
  object.Set("Captured", objectOf(env, {{"OFFSET", captured::offset},
                                        {"LENGTH", captured::length},
                                        {"ORIGINAL_LENGTH", captured::originalLength},
                                        {"SECONDS", captured::seconds},
                                        {"NANOSECONDS", captured::nanoseconds},
                                        {"OUTGOING", captured::outgoing}}));
  return object;
}

Napi::Object init(Napi::Env env, Napi::Object exports) {
  env.SetInstanceData(new Addon);
  Socket::define(env, exports);
  Port::define(env, exports);
  Capture::define(env, exports);
  FrameSocket::define(env, exports);
  InterfaceWatcher::define(env, exports);
  Descriptors::define(env, exports);
  Doorbells::define(env, exports);
  LocalSocket::define(env, exports);
  ProcessMemory::define(env, exports);
  XdpPort::define(env, exports);
  exportChecksums(env, exports);
  exportCopy(env, exports);
  exportProcessor(env, exports);
  exportSharedFile(env, exports);
  exports.Set("now", Napi::Function::New<now>(env, "now"));
  exports.Set("layout", layout(env));
  exports.Set("build", ROCE_TEXT(ROCE_BUILD));
  exports.Set("Wake", objectOf(env, {{"READABLE", kWakeReadable},
                                     {"WRITABLE", kWakeWritable},
                                     {"TIMER", kWakeTimer}}));
  return exports;
}

NODE_API_MODULE(dgram_native, init)

}  // namespace
}  // namespace roce
