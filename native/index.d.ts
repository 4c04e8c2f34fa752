/**
 * UDP sockets in batches, with GSO, GRO and the RoCE ICRC. Linux only.
 *
 * The words of slots, fragments and copies are those of `@node-roce/transport`'s batches (`layout` has
 * the numbers). Wrong arguments throw a TypeError (`ERR_INVALID_ARG_TYPE`) or a RangeError
 * (`ERR_OUT_OF_RANGE`); failed system calls an Error with `code` (`'EADDRINUSE'`, …), `errno` (negative)
 * and `syscall`. Importing the module throws `ERR_ROCE_NO_ADDON` where there is no addon for this machine,
 * `ERR_ROCE_ADDON_LOAD` where there is one that does not load, and `ERR_ROCE_STALE_ADDON` where it was built from other sources.
 * Everything works in worker threads; objects belong to the thread that made them.
 */

/** The number of the sources that the addon was built from: 16 hexadecimal digits. */
export const build: string;

/** Names of the implementations of the CRC, fastest first. */
export type CrcImplementation = 'vpclmul' | 'pclmul' | 'arm' | 'table';

export interface Features {
  /** UDP_SEGMENT: runs of equal-sized packets go to the kernel as one. */
  gso: boolean;
  /** Segments that one run may have: 128 or 64; 1 without GSO. */
  gsoMaxSegments: number;
  /** UDP_GRO: such runs arrive as one. */
  gro: boolean;
  sendmmsg: boolean;
  /** The CRC in use. */
  crc: CrcImplementation;
}

/** Features of kernel and processor; probed once per thread, when first called. */
export function features(): Features;

/**
 * The CRC implementation for this thread from now on, for tests.
 * @throws RangeError when this processor cannot run it
 */
export function setCrcImplementation(name: CrcImplementation): void;

/**
 * CRC-32 as zlib's `crc32(bytes, seed)`; of `bytes[start]` … `bytes[end - 1]`, without a view of them.
 * @throws RangeError unless 0 ≤ start ≤ end ≤ bytes.length
 */
export function crc32(bytes: Uint8Array, seed?: number, start?: number, end?: number): number;

/**
 * Copies `source` to the start of `target` and returns the CRC-32 of the copied bytes, reading every byte
 * of `source` once: the two agree even while another thread writes to `source`.
 * @throws RangeError when target is shorter than source or they overlap
 */
export function crc32Copy(target: Uint8Array, source: Uint8Array, seed?: number): number;

/** CLOCK_MONOTONIC in microseconds, with a fraction. */
export function now(): number;

/** The number of the processor that this thread runs on, for now (sched_getcpu). */
export function processor(): number;

/** Lets other threads run that wait for this processor (sched_yield). Returns how long they did, µs, a whole number. */
export function yieldProcessor(): number;

/**
 * Sets the time that the scheduler gives this thread in one piece, µs, 100 … 100000; 0: the default. With a short one, a wake takes the
 * processor from a thread that computes at once (Linux 6.12 and newer, SCHED_OTHER). False where the kernel refuses.
 */
export function setSlice(microseconds: number): boolean;

/**
 * Wakes the threads of other processes that wait at a word of memory that they share with this one (futex(2), FUTEX_WAKE).
 * @throws RangeError when the word is not in `words`
 */
export function wakeWaiting(words: Uint32Array, index: number): void;

/**
 * The exclusive or of two IPv4 Identifications (0 … 65535) that explains why two ICRCs differ, plus 65536 where the headers differ in
 * "don't fragment", too; -1 when no Identification does (docs/icrc.md).
 * @param difference the ICRC received xor the one computed, unsigned 32-bit
 * @param datagramBytes bytes of UDP payload from the BTH through the ICRC, 16 … 65507
 */
export function solveId(difference: number, datagramBytes: number): number;

/** The IPv4 Identifications to be expected of one flow (docs/icrc.md); exported for tests. */
export class IdWindow {
  /**
   * Whether a packet with that Identification counts; if so, the window moves with it.
   * @param id 0 … 65535, plus 65536 where the header has no "don't fragment"
   * @param nowMs any clock of milliseconds, unsigned 32-bit
   * @param arrivedAfterMs the earliest that the packet can have arrived; `nowMs` unless given
   */
  admit(id: number, nowMs: number, arrivedAfterMs?: number): boolean;
}

export interface SocketOptions {
  family: 4 | 6;
  /** Numeric; IPv6 link-local ones with their scope: `fe80::1%eth0`. */
  address: string;
  /** 0 for one of the kernel's choice. */
  port: number;
  /**
   * A descriptor of a UDP socket that is bound already, to this address and port: it is duplicated, and set up with
   * these options but for `reusePort`. Default: a new socket.
   */
  descriptor?: number;
  /** SO_REUSEPORT. Default false. */
  reusePort?: boolean;
  /**
   * Bytes of receive queue to ask for, up to 2^30; forced past the system's limit where CAP_NET_ADMIN
   * allows it. Default: the system's. The granted size can be read back.
   */
  receiveBuffer?: number;
  /** Likewise for sending. */
  sendBuffer?: number;
  /** UDP_GRO, where the kernel has it. Default false. */
  gro?: boolean;
  /** False sends with UDP checksum 0 (SO_NO_CHECK, UDP_NO_CHECK6_TX). Default true. */
  checksum?: boolean;
  /** False has the kernel drop whatever arrives. Default true. */
  receive?: boolean;
  /** SO_BINDTODEVICE. */
  device?: string;
  /**
   * Name of the interface that packets to groups leave by. Default: the one that has the address (IPv4) or is
   * its scope (link-local IPv6), else the one of the route. ENODEV where there is none of this name.
   */
  multicastInterface?: string;
}

/**
 * A UDP socket for RoCE: never connected, non-blocking, close-on-exec, IPv6 only if IPv6, "don't fragment"
 * without path MTU discovery (IP_PMTUDISC_PROBE), zero checksums accepted over IPv6.
 */
export class Socket {
  /** @throws an Error with `code` 'EADDRINUSE', 'EADDRNOTAVAIL', 'EACCES', …, `syscall`, `address`, `port` */
  constructor(options: SocketOptions);
  readonly address: string;
  /** The real one when 0 was asked for. */
  readonly port: number;
  readonly family: 4 | 6;
  /** Bytes granted, by the kernel's own account (twice the size asked for); 0 once closed. */
  readonly receiveBuffer: number;
  readonly sendBuffer: number;
  /** Whether UDP_GRO is on. */
  readonly gro: boolean;
  /** Datagrams that the kernel dropped here since the socket was opened; 0 once closed. */
  readonly drops: number;
  readonly closed: boolean;
  /**
   * Joins a multicast group; `iface` is a name or an index, by default that of the route. A socket that is
   * bound to a group's address shares it with others of this machine (SO_REUSEADDR): each gets a copy.
   */
  joinGroup(address: string, iface?: string | number): void;
  leaveGroup(address: string, iface?: string | number): void;
  /** Another descriptor of the socket, which is the caller's to close. */
  duplicate(): number;
  /**
   * Attaches the program that chooses the socket of a group with one address and port (`reusePort`) for each datagram: classic BPF
   * that sees the UDP payload, and returns an index in the order in which the sockets were bound.
   * @param program two words an instruction: `code | jt << 16 | jf << 24`, and `k`
   */
  steer(program: Uint32Array): void;
  /** Whether the kernel drops whatever arrives, for every process that has the socket. */
  mute(on: boolean): void;
  /** For good. A port skips it from then on. */
  close(): void;
}

/** A message of a LocalSocket. */
export interface LocalMessage {
  length: number;
  /** The user id of the sender, from the kernel. */
  uid: number;
  /** Descriptors that came with it; the receiver's to close. */
  descriptors: number[];
}

/**
 * File descriptors with an owner: `close` closes them, and so does the end of the thread, however it comes (an uncaught error,
 * `worker.terminate`). Node does neither for descriptors that are mere numbers, and it warns where `fs.close` meets one in a worker.
 */
export class Descriptors {
  /** @param descriptors theirs from now on: closed by nobody else */
  constructor(descriptors: readonly number[]);
  /** The numbers, in their order; none once closed. */
  list(): number[];
  /** For good. */
  close(): void;
}

/** A Unix datagram socket with an abstract name (unix(7)): one at a time in a network namespace has a name, until it is closed. */
export class LocalSocket {
  /** @throws an Error with `code` 'EADDRINUSE' where the name is taken */
  constructor(name: string);
  /**
   * Sends to the socket with a name, without waiting.
   * @param descriptors to go with the bytes, 64 at most
   * @returns 0, or an errno: ECONNREFUSED where nobody has the name, EAGAIN where its queue is full
   */
  send(name: string, bytes: Uint8Array, descriptors?: readonly number[]): number;
  /**
   * Whether messages may bring descriptors; not at first. Before Linux 6.16 they may always. Those of other users are never received: a
   * thread discards such a message, and nothing is received until it has.
   */
  allowDescriptors(on: boolean): void;
  /** Takes a message, cut to the length of `bytes`; undefined where none waits. */
  receive(bytes: Uint8Array): LocalMessage | undefined;
  close(): void;
}

/** Why `onWake` was called: a set of bits. */
export const Wake: {
  readonly READABLE: 1;
  /** The socket that `wantWrite` asked for has room. */
  readonly WRITABLE: 2;
  /** The deadline is over. */
  readonly TIMER: 4;
};

/** Options of the ports of all links. */
export interface LinkPortOptions {
  /** Called in the event loop while the port is started. An exception in it is uncaught. */
  onWake?: (events: number) => void;
  /** Takes a FLUSH (opcode 0x1c) whose ICRC covers BTH to RETH twice, as rxe of Linux 6.12 sends it. Default false. */
  takeFlushTwice?: boolean;
  /** Sends FLUSHes with that ICRC, the only one that such an rxe takes. Default false. */
  sendFlushTwice?: boolean;
  /** Default 65536. */
  maxPeers?: number;
  /** CLOCK_MONOTONIC, µs, at which the `time` of `send` and `receive` is 0. Default 0. */
  timeOrigin?: number;
}

export interface PortOptions extends LinkPortOptions {
  /** Transmit sockets per local address, 1 … 1024. Default 16. */
  transmitSockets?: number;
  /** Bytes of send queue of each of them. Default: the system's. */
  sendBuffer?: number;
  /** GSO where the kernel has it. Default true. */
  gso?: boolean;
  /** Packets of one GSO run at most, 1 … 128. Default: what the kernel takes. */
  maxSegments?: number;
  /** False sends with UDP checksum 0, which excludes GSO. Default true. */
  udpChecksum?: boolean;
  /**
   * False takes any IPv4 Identification that makes an ICRC right, so that one corrupt packet in 32,768
   * passes: for a source whose Identifications follow no counter. Default true.
   */
  idWindow?: boolean;
}

export interface PeerOptions {
  /** 16 bytes; `::ffff:a.b.c.d` for IPv4. May be the address of a group. */
  address: Uint8Array;
  /** Index of the local address that packets to it leave from. */
  local: number;
  /** TTL or hop limit, 1 … 255; 0 and default: 64. */
  hopLimit?: number;
  /** UDP destination port. Default 4791. */
  port?: number;
}

/** Counters since the port was made. */
export interface PortStats {
  /** Packets, and bytes of UDP payload, that the kernel took. */
  txPackets: number;
  txBytes: number;
  /** Messages they made: a GSO run is one. */
  txMessages: number;
  /** Messages of two packets or more. */
  gsoRuns: number;
  /** Runs that the kernel refused, then sent one by one. */
  gsoFallbacks: number;
  /** Slots that stood for several packets, `Tx.RUN`. */
  runSlots: number;
  /** Packets for which the kernel gave an error (in their STATUS). */
  sendErrors: number;
  /** Slots that were wrong or had no socket to leave from. */
  sendRejected: number;
  /** Batches that ended early because a socket was full. */
  sendBlocked: number;
  /** Datagrams received: a GRO super-packet is one. */
  rxDatagrams: number;
  /** Packets handed over, whatever the verdict, and their bytes of UDP payload. */
  rxPackets: number;
  rxBytes: number;
  /** Super-packets of two packets or more. */
  groRuns: number;
  icrcBad: number;
  icrcOutOfWindow: number;
  /** FLUSHes taken whose ICRC covers BTH to RETH twice. */
  flushTwice: number;
  /** IPv4 Identifications that were not the predicted ones. */
  solved: number;
  /** Packets with a right ICRC for an IPv4 header without "don't fragment". */
  mayFragment: number;
  /** Too short for a BTH and an ICRC. */
  runts: number;
  /** Datagrams longer than their place in the slab. */
  truncated: number;
  /** Packets of a super-packet for which no slot was left. */
  overruns: number;
  /** Errors of recvmmsg. */
  receiveErrors: number;
  /** Datagrams that the kernel dropped at the local sockets: their receive buffers were full. */
  kernelDrops: number;
  /** Transmit sockets open. */
  transmitSockets: number;
}

/** The ports of all links: peers, batches, the clock and wake-ups. */
export interface LinkPort {
  /** @returns the peer's index, for `Tx.PEER` and `Rx.PEER` */
  addPeer(peer: PeerOptions): number;
  /** Its index may be given to another peer later. */
  removePeer(peer: number): void;
  /** @throws RangeError while a peer refers to it */
  removeLocal(local: number): void;

  /**
   * At the end of each `send` and `receive` from now on, the first element of `time` becomes the time, µs after
   * `timeOrigin`, and the second one 0 where the last `receive` left nothing, else 1. Where the second one is 2 before a `receive` of a port with
   * one local address, that takes one datagram at most. `time` has to be over a SharedArrayBuffer: such memory can't be taken away, so it is
   * looked up only here.
   */
  setClock(time: Float64Array): void;

  /**
   * Sends slots `from` … `count` - 1 in order. Each packet is its header, its fragments, the pad and the
   * ICRC, which covers the source port that is really used.
   *
   * `STATUS` of a slot becomes 0 when the kernel took it, else an errno, and then it was skipped: EINVAL
   * (lengths that do not add up, no such peer, over 256 fragments), EFAULT (outside of `headers`,
   * `fragments` or its region, or the region is detached), EMSGSIZE (over 65,507 bytes, or over the MTU),
   * or the kernel's error for that packet (EHOSTUNREACH, ENETUNREACH, EPERM, …).
   *
   * @param slots words of `Tx`
   * @param headers what HEADER_OFFSET points into
   * @param fragments words of `Fragment`
   * @param regionViews a Uint8Array by region index, or undefined
   * @param regionShared not 0 for a region that another thread may write: it is copied and checksummed in
   *   one pass, everything else may be gathered by reference
   * @returns the first slot not taken: `count`, or less when there is no room (`wantWrite`)
   */
  send(
    slots: Uint32Array,
    headers: Uint8Array,
    fragments: Uint32Array,
    from: number,
    count: number,
    regionViews: readonly (Uint8Array | undefined)[],
    regionShared: Uint8Array,
  ): number;

  /**
   * Receives what has arrived, as far as there is room, and checks every ICRC.
   *
   * @param slab where packets are put; slots point into it
   * @param slots words of `Rx`
   * @param sources 16 bytes a slot: the source address as a GID
   * @param capacity slots to use at most
   * @returns packets received
   */
  receive(slab: Uint8Array, slots: Uint32Array, sources: Uint8Array, capacity: number): number;

  /**
   * Returns a function that sends slots of one batch, as `send`, in half the time: the arrays are looked up here alone.
   * They have to be over SharedArrayBuffers, which can't be taken away; the views of regions don't. `view`: the region's, where the slots
   * have one region alone; it is not looked up then.
   */
  sender(
    slots: Uint32Array,
    headers: Uint8Array,
    fragments: Uint32Array,
    regionViews: readonly (Uint8Array | undefined)[],
    regionShared: Uint8Array,
  ): (from: number, count: number, view?: Uint8Array) => number;

  /** Returns a function that receives into one batch, as `receive`; the arrays as with `sender`. */
  receiver(slab: Uint8Array, slots: Uint32Array, sources: Uint8Array, capacity: number): () => number;

  /** Wakes once in so many microseconds (resolution of the kernel's timers); Infinity: never. */
  setDeadline(microsecondsFromNow: number): void;
  /** Wakes while there is room to send again, where a `send` ended early. */
  wantWrite(on: boolean): void;
  /** Starts calling `onWake`. A started port keeps the event loop alive unless `unref` was called. */
  start(): void;
  stop(): void;
  ref(): void;
  unref(): void;
  /** For good: everything but `stats` and `close` throws `ERR_ROCE_PORT_CLOSED` afterwards. */
  close(): void;
}

/**
 * The UDP sockets of one link. Consecutive packets of the same service, traffic class and size (the last may be shorter), from one
 * socket to one address, leave as one GSO run: over any queue pairs with a QPN below 0x800000, else with the same low byte. Room to receive means 64 KiB of slab and 128 slots for each datagram at a GRO socket, 8 KiB and
 * one slot elsewhere. `wantWrite` watches the socket that ended the last `send` early, each later `send` updates the socket;
 * where the kernel does not report room (ENOBUFS, ENOMEM), and where it takes no watch (EMFILE), it wakes once a millisecond.
 */
export class Port {
  constructor(options?: PortOptions);

  /**
   * Takes a socket that is bound to one address, and receives from it. A group that is joined gets a
   * socket of its own, bound to the group's address. The socket stays the caller's to close.
   * @returns the index of the local address
   */
  addLocal(socket: Socket): number;

  /** Wakes while messages wait at a local socket, too; `receive` then looks at it. */
  watch(socket: LocalSocket): void;
  /** To be called before the socket is closed. */
  unwatch(socket: LocalSocket): void;
  /** Whether a message waited at one of them, when `receive` looked since the last call. */
  takeMail(): boolean;

  /**
   * GSO for one peer. It is on at first, and goes off by itself when the kernel refuses a run
   * (EIO, EINVAL).
   */
  setPeerGso(peer: number, on: boolean): void;
  /** As `idWindow: false` of the constructor, from now on and for good. */
  openIdWindow(): void;
  /**
   * Has the kernel stamp what arrives from now on: slots get STAMP_LOW and STAMP_HIGH, ns of CLOCK_MONOTONIC, which `process.hrtime`
   * shows. For good, and of sockets that are added later, too.
   */
  stampArrivals(): void;

  /** Fills `into`, or a new object. */
  stats(into?: PortStats): PortStats;
}

export interface Port extends LinkPort {}

export interface XdpPortOptions extends LinkPortOptions {
  /** Name of an Ethernet interface, or `lo`. */
  interface: string;
  /** UDP port whose packets are taken. Default 4791. */
  port?: number;
  /** Runs the program behind the driver instead of in it. Default false. */
  generic?: boolean;
  /** Has the driver write into the memory itself; without it the kernel copies. Default false. */
  zeroCopy?: boolean;
  /** Receive queues of an interface whose driver has no channels (ethtool(8)), 1 … 65535. The first 64 get sockets. Default 1. */
  queues?: number;
  /** Chunks of 4096 bytes to receive into, of each queue; a power of two, 64 … 65536. Default 4096. */
  receiveChunks?: number;
  /** Places to send from; a power of two, 64 … 65536. Default 1024. */
  sendSlots?: number;
  /** Places of 8192 bytes, for frames of more than 4096. Default false. */
  largeSlots?: boolean;
  /** Waits up to half a second for memory to lock: a port that was closed just now may still have it. Default false. */
  waits?: boolean;
}

/**
 * AF_XDP sockets on the queues of an interface, and a program on it that gives them what is for the addresses, the port and
 * the queue pairs of this port; all else goes on to the kernel. Packets that `receive` puts into `memory()` stay where they arrived, until the next
 * call. `wantWrite` wakes once a millisecond.
 */
export class XdpPort {
  /**
   * @throws an Error with `code` and `syscall`: `bpf(BPF_MAP_CREATE)`, `bpf(BPF_PROG_LOAD)`, `bpf(BPF_LINK_CREATE)`,
   *   `socket(AF_XDP)`, `setsockopt(XDP_UMEM_REG)`, `bind(AF_XDP)`, …
   */
  constructor(options: XdpPortOptions);
  /** The memory that packets arrive in. It stays until the last view of it is gone, also after `close`. */
  memory(): Uint8Array<ArrayBuffer>;
  /** Whether frames may have several buffers (Linux 6.6). */
  fragments(): boolean;
  /**
   * Takes packets for an address, or for a group, whatever the queue pair.
   * @param services whether those for queue pair 1, too
   * @returns the index of the local address
   */
  addLocal(address: Uint8Array, services: boolean): number;
  /** Whether packets for a queue pair are taken. */
  setQueuePair(qpn: number, on: boolean): void;
  /** Counters by name: docs/xdp.md. */
  stats(): Record<string, number>;
}

export interface XdpPort extends LinkPort {}

export interface CaptureOptions {
  /** Name of a network interface. */
  interface: string;
  /** Bytes to keep of a frame, 64 … 262144. Default 262144, which no frame reaches. */
  snapLength?: number;
  /** Frames longer than this, 0 … 262144, are kept whole: several packets in one, by segmentation offload. Default 262144. */
  wholeFrom?: number;
  /** Frames to other hosts too, as a mirror port brings them. Default true. */
  promiscuous?: boolean;
  /** Mirrors too: ERSPAN (any GRE) and VXLAN, whatever they carry. Default false. */
  mirrors?: boolean;
  /** Bytes of the ring that frames wait in, 1 MiB … 1 GiB. Default 64 MiB. */
  buffer?: number;
  /** Called in the event loop while the capture is started and there is something to read. */
  onWake?: (events: number) => void;
}

/**
 * The RoCE frames that an interface sends and receives, by an AF_PACKET socket with a ring (packet(7),
 * TPACKET_V3). A filter in the kernel takes UDP to port 4791 over IPv4 and IPv6, EtherType 0x8915, pause frames and ICMP errors, behind
 * VLAN tags (three at least). On the loopback interface, where all pass twice, only what is received.
 * A NIC that does RoCE in hardware shows none of its own packets to the kernel.
 */
export class Capture {
  /**
   * @throws an Error with `code` 'EPERM' without CAP_NET_RAW, 'ENODEV', 'EPROTONOSUPPORT' where frames
   *   start with neither Ethernet nor IP, 'ENOMEM'
   */
  constructor(options: CaptureOptions);
  /** As in pcap files: 1 (Ethernet) or 101 (IP). */
  readonly linkType: number;
  /**
   * Copies the frames that have arrived, as far as there is room. A VLAN tag that the kernel took out is put back.
   * A frame waits at most 20 ms in the kernel before it can be read.
   *
   * @param slab where frames are put; at least `snapLength` + 4 bytes, 262148 with `wholeFrom`
   * @param slots words of `Captured`, one slot a frame
   * @returns frames copied
   * @throws what the socket reports: 'ENETDOWN' when the interface goes down or away
   */
  read(slab: Uint8Array, slots: Uint32Array): number;
  /** Starts calling `onWake`. A started capture keeps the event loop alive. */
  start(): void;
  stop(): void;
  /** Stops taking frames; those that the kernel has can still be read. */
  finish(): void;
  /** Frames that passed the filter, and those of them that found no room in the ring. */
  stats(): { received: number; dropped: number };
  /** For good: everything but `stats` and `close` throws `ERR_ROCE_CAPTURE_CLOSED` afterwards. */
  close(): void;
}

export interface FrameSocketOptions {
  /** Name of an Ethernet interface, or `lo`. */
  interface: string;
  /** Called in the event loop while there are frames (`wantRead`), and when there is room to send again. */
  onWake?: () => void;
  /** Bytes of receive queue to ask for, 2^16 … 2^30; forced past the system's limit where CAP_NET_ADMIN allows. Default 8 MiB. */
  receiveBuffer?: number;
}

/**
 * Whole Ethernet frames of an interface (packet(7)): of what this host sends, nothing comes back. It hears nothing until it
 * has a filter, and keeps no event loop alive.
 */
export class FrameSocket {
  /**
   * @throws an Error with `code` 'EPERM' without CAP_NET_RAW, 'ENODEV', 'EPROTONOSUPPORT' where frames do not start with
   *   an Ethernet header
   */
  constructor(options: FrameSocketOptions);
  /** Bytes of slab that `receive` takes for each frame. */
  static readonly FRAME_ROOM: number;
  /**
   * Takes the frames that pass a classic BPF program, from now on.
   * @param program two words an instruction: `code | jt << 16 | jf << 24`, and `k`
   * @throws an Error with `code` 'EINVAL' for a program that the kernel refuses
   */
  setFilter(program: Uint32Array): void;
  /**
   * Sends slots `from` … `count` - 1 in order: words of `Tx`, of which only the fragments count. `STATUS` becomes 0 or
   * the errno for which a frame was not sent: EMSGSIZE over the MTU, EINVAL without a whole header, EFAULT, ENETDOWN, …
   * @returns the first slot not taken: `count`, or less when there is no room now (`onWake` follows)
   */
  send(
    slots: Uint32Array,
    fragments: Uint32Array,
    from: number,
    count: number,
    regionViews: readonly (Uint8Array | undefined)[],
  ): number;
  /**
   * Receives at most `most` frames, 64 a call, with the VLAN tag that the kernel took out.
   * @param slab where frames are put, FRAME_ROOM bytes for each
   * @param slots words of `Frame`; a length of 0: the frame was longer than FRAME_ROOM
   */
  receive(slab: Uint8Array, slots: Uint32Array, most: number): number;
  /** Whether `onWake` is called while there are frames; at first it is not. */
  wantRead(on: boolean): void;
  /** Frames that passed the filter, and those of them that found no room. */
  stats(): { received: number; dropped: number };
  /** For good: everything but `stats` and `close` throws `ERR_ROCE_SOCKET_CLOSED` afterwards. */
  close(): void;
}

/** A change of an interface. */
export interface InterfaceChange {
  /**
   * `up`, `down`: whether it runs, as of now; may be repeated without a change. `gone`: it was deleted, or went
   * to another network namespace; the name may come back. `added`, `removed`: an address, usable from now on
   * or no longer. `overrun`: the kernel dropped events; read the interface's state anew.
   */
  kind: 'up' | 'down' | 'gone' | 'added' | 'removed' | 'overrun';
  /** Numeric, without scope. */
  address?: string;
}

/**
 * Hears from the kernel what happens to one interface (rtnetlink(7)); no privilege is needed. It watches until
 * it is closed, and keeps no event loop alive. An interface that is made anew under its name is the same.
 */
export class InterfaceWatcher {
  /**
   * @param options.onWake called in the event loop when there is something to read; an exception in it is uncaught
   * @throws an Error with `code` 'ENODEV' where there is no such interface
   */
  constructor(options: { interface: string; onWake: () => void });
  /** Changes since the last call, in order; nothing once closed. */
  read(): InterfaceChange[];
  close(): void;
}

/**
 * Descriptors that other processes write 8 bytes to (eventfd(2)) to wake the event loop. They keep no event loop alive, and are
 * never read from: a process that shares one cannot make this one wait.
 */
export class Doorbells {
  /** @param onRing called in the event loop after one or more writes to any of them; an exception in it is uncaught */
  constructor(onRing: () => void);
  /** The descriptor of a new one, close-on-exec and non-blocking. */
  add(): number;
  /** Forgets and closes a descriptor of `add`. False for another one. */
  remove(fd: number): boolean;
  /** For good: all descriptors are closed. */
  close(): void;
}

/**
 * Copies payload from a slab into regions: `count` entries of `Copy` in `list`, in order.
 * @returns the index of the first entry that is out of bounds, at which it stopped; `count` if none is
 */
export function copyBatch(
  slab: Uint8Array,
  regionViews: readonly (Uint8Array | undefined)[],
  list: Uint32Array,
  count: number,
): number;

/**
 * Returns a function that does `copyBatch` with the first `count` entries: slab and list are looked up here alone. They have to be
 * over SharedArrayBuffers, which can't be taken away; the views of regions don't.
 */
export function copier(
  slab: Uint8Array,
  regionViews: readonly (Uint8Array | undefined)[],
  list: Uint32Array,
): (count: number) => number;

/** The numbers of native/src/layout.h, under the names of packages/transport/src/batch.ts. */
export const layout: {
  readonly TX_HEADER_STRIDE: number;
  readonly TX_SLOT_WORDS: number;
  readonly FRAGMENT_WORDS: number;
  readonly RX_SLOT_WORDS: number;
  readonly COPY_WORDS: number;
  readonly CAPTURED_SLOT_WORDS: number;
  readonly FRAME_SLOT_WORDS: number;
  readonly NO_PEER: number;
  readonly Tx: Readonly<Record<string, number>>;
  readonly Fragment: Readonly<Record<string, number>>;
  readonly Rx: Readonly<Record<string, number>>;
  readonly Icrc: Readonly<Record<string, number>>;
  readonly Copy: Readonly<Record<string, number>>;
  readonly Frame: Readonly<Record<string, number>>;
  /** Words of a slot of `Capture`: OFFSET, LENGTH, ORIGINAL_LENGTH, SECONDS (since 1970), NANOSECONDS, OUTGOING (0, 1). */
  readonly Captured: Readonly<Record<string, number>>;
};

/**
 * Returns the descriptor of a sparse memfd of that size, 1 … 2^47 bytes, close-on-exec. Its seals forbid another size, so
 * that no process that has the descriptor can take mapped pages away. The caller closes it.
 */
export function createSharedFile(bytes: number): number;

/**
 * Puts pages of such a file under `pages`: whole pages of a shared WebAssembly.Memory, the one kind of memory that V8
 * hands out page-aligned and gives back by munmap. `offset`: bytes, a whole page, the end at 2^47 at most.
 * @throws RangeError for other memory, another file or offset; an Error with `code` where mmap fails
 */
export function mapSharedFile(pages: Uint8Array, fd: number, offset: number): void;

/** Puts zeros in place of the file's pages. */
export function unmapSharedFile(pages: Uint8Array): void;

/**
 * Sends one byte and a descriptor over the Unix socket with the descriptor `socket`, without waiting.
 * @throws an Error with `code` 'EAGAIN', 'EPIPE', 'EBADF', …
 */
export function sendDescriptor(socket: number, fd: number): void;

/** Returns both ends of a connection that carries descriptors, close-on-exec. The caller closes them. */
export function descriptorPair(): [number, number];

/** Returns the descriptor that waits at an end of such a connection; −1 where none does. The caller closes it. */
export function receiveDescriptor(end: number): number;

/** Returns the number of the process at the other end of a Unix socket, as the kernel knows it; 0 where it has none here. */
export function peerProcess(socket: number): number;

/**
 * The memory of another process, by a descriptor of its own /proc/self/mem. It stays that memory: once the process has executed
 * another program, nothing is read or written. A process whose memory keeps a call waiting for 5 s, as nobody serves its
 * userfaultfd, is killed, with a line on stderr.
 */
export class ProcessMemory {
  /**
   * @param fd the object closes it
   * @param pid the process, 0 if it has no number here: it is not killed then
   * @throws RangeError for another file, which stays open
   */
  constructor(fd: number, pid: number);
  /** Reads `length` bytes at an address into `bytes`, from `offset` on. False where not all of them can be read. */
  pull(bytes: Uint8Array, offset: number, length: number, address: number): boolean;
  /** Writes `length` bytes of `bytes`, from `offset` on, to an address. False where not all of them can be written. */
  push(bytes: Uint8Array, offset: number, length: number, address: number): boolean;
  /** Closes the descriptor: nothing is read or written any more. */
  close(): void;
}
