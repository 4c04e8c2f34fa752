/** Reasons why a frame is no packet. */

/** Why a frame is no packet. */
export type Refusal =
  /** Another protocol or port, a later fragment, a link type that can't hold RoCE. */
  | 'not-roce'
  /** The frame ends before the BTH does, and perhaps before anything that shows whether it is RoCE. */
  | 'truncated'
  /** Lengths or versions contradict each other. */
  | 'malformed'
  /** The first IP fragment of a datagram to a port of RoCE. */
  | 'fragment'
  /** No such opcode. */
  | 'unknown-opcode'
  /** An opcode that the specification leaves to manufacturers. */
  | 'vendor-opcode'
  /** Several packets in one datagram, and too little of it captured to find where each begins. */
  | 'cut-super-packet'
  /** A pause frame: `FrameDecoder.pause`. */
  | 'pause'
  /** An ICMP error about a RoCE packet: `FrameDecoder.icmp`. */
  | 'icmp'
  /** A datagram of samples (sFlow) at `offset`: `decodeSample` reads each. */
  | 'samples';
