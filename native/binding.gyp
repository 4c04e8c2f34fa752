{
  # 1: for the package on the registry (scripts/release/prebuild-native.mjs), to run where glibc and libstdc++ are older or absent.
  "variables": { "prebuild%": 0 },
  "targets": [
    {
      "target_name": "dgram_native",
      "conditions": [
        ["OS!='linux'", { "type": "none" }, {
          "dependencies": [
            "<!(node -p \"require('node-addon-api').targets\"):node_addon_api_except_all"
          ],
          "sources": [
            "src/addon.cc",
            "src/arguments.cc",
            "src/address.cc",
            "src/callback.cc",
            "src/capture.cc",
            "src/checksums.cc",
            "src/copy.cc",
            "src/crc.cc",
            "src/crc_arm.cc",
            "src/crc_pclmul.cc",
            "src/crc_vpclmul.cc",
            "src/descriptors.cc",
            "src/features.cc",
            "src/frame_socket.cc",
            "src/icrc.cc",
            "src/id_window.cc",
            "src/doorbells.cc",
            "src/interface_watcher.cc",
            "src/link_port.cc",
            "src/local_socket.cc",
            "src/netlink.cc",
            "src/packet_filter.cc",
            "src/packet_ring.cc",
            "src/peers.cc",
            "src/port.cc",
            "src/receive.cc",
            "src/regions.cc",
            "src/route_events.cc",
            "src/send.cc",
            "src/processor.cc",
            "src/process_memory.cc",
            "src/shared_file.cc",
            "src/socket.cc",
            "src/transmit_pool.cc",
            "src/tx_slots.cc",
            "src/udp_socket.cc",
            "src/waker.cc",
            "src/xdp_filter.cc",
            "src/xdp_neighbours.cc",
            "src/xdp_port.cc",
            "src/xdp_receive.cc",
            "src/xdp_send.cc",
            "src/xdp_socket.cc",
            "src/xdp_ways.cc"
          ],
          "defines": [
            "NAPI_VERSION=8",
            "ROCE_BUILD=<!(node build-id.mjs)",
            "NODE_API_SWALLOW_UNTHROWABLE_EXCEPTIONS"
          ],
          "cflags_cc": ["-std=c++17", "-O3", "-Wall", "-Wextra", "-Wno-unused-parameter", "-fvisibility=hidden"],
          "cflags_cc!": ["-fno-exceptions", "-std=gnu++17"],
          # A thread of local_socket.cc may outlive the worker that loaded the addon.
          "ldflags": ["-Wl,-z,nodelete"],
          "conditions": [
            ["prebuild==1", {
              "sources": ["src/old_glibc.cc"],
              "ldflags": [
                "-static-libstdc++",
                "-static-libgcc",
                "-Wl,--version-script=<(module_root_dir)/src/exports.map",
                "-Wl,-z,now",
                "-s"
              ]
            }]
          ]
        }]
      ]
    }
  ]
}
