/**
 * Counts, and the same under the names that rxe and mlx5 give them in `hw_counters` of their devices
 * (docs/counters.md documents each count, and where it differs).
 */
import type { AdapterCounts, QpCounters } from '@node-roce/transport';

/** The counters that a queue pair and a device share. */
type Counts = QpCounters & Pick<AdapterCounts, 'acceptedPackets'>;
type Names = Readonly<Record<string, (counts: Counts) => number>>;

/** drivers/infiniband/sw/rxe/rxe_hw_counters.c. */
const RXE = {
  sent_pkts: (c) => c.sentPackets - c.sendErrors,
  rcvd_pkts: (c) => c.acceptedPackets,
  duplicate_request: (c) => c.duplicateRequest,
  out_of_seq_request: (c) => c.outOfSeqRequest,
  rcvd_rnr_err: (c) => c.receivedRnrErr,
  send_rnr_err: (c) => c.sentRnrErr,
  rcvd_seq_err: (c) => c.receivedSeqErr,
  // A response is handled where it comes in: there is no later context to put it off to.
  ack_deferred: () => 0,
  retry_exceeded_err: (c) => c.retryExceededErr,
  retry_rnr_exceeded_err: (c) => c.rnrRetryExceededErr,
  completer_retry_err: (c) => c.retries,
  send_err: (c) => c.sendErrors,
  rdma_sends: (c) => c.completedSends,
  rdma_recvs: (c) => c.completedReceives,
} satisfies Names;

/** drivers/infiniband/hw/mlx5/counters.c. */
const MLX5 = {
  rx_write_requests: (c) => c.writeRequests,
  rx_read_requests: (c) => c.readRequests,
  rx_atomic_requests: (c) => c.atomicRequests,
  out_of_buffer: (c) => c.sentRnrErr + c.outOfBuffer,
  out_of_sequence: (c) => c.outOfSeqRequest,
  duplicate_request: (c) => c.duplicateRequest,
  rnr_nak_retry_err: (c) => c.receivedRnrErr - c.rnrRetryExceededErr,
  packet_seq_err: (c) => c.sequenceNakRetries,
  implied_nak_seq_err: (c) => c.impliedNakSeqErr,
  local_ack_timeout_err: (c) => c.timeouts,
  resp_local_length_error: (c) => c.shortReceives,
  resp_cqe_error: (c) => c.failedReceives + c.flushedReceives,
  resp_cqe_flush_error: (c) => c.flushedReceives,
  resp_remote_access_errors: (c) => c.sentAccessErr,
  req_cqe_error: (c) => c.failedSends + c.flushedSends,
  req_cqe_flush_error: (c) => c.flushedSends,
  req_remote_access_errors: (c) => c.receivedAccessErr,
  req_remote_invalid_request: (c) => c.receivedInvalidRequest,
  roce_adp_retrans: (c) => c.probes,
  np_cnp_sent: (c) => c.cnpSent,
  np_ecn_marked_roce_packets: (c) => c.ecnMarked,
  rp_cnp_handled: (c) => c.cnpHandled,
  rp_cnp_ignored: (c) => c.cnpReceived - c.cnpHandled,
} satisfies Names;

function named<N extends Names>(names: N, counts: Counts): Record<keyof N, number> {
  const entries = Object.entries(names).map(([name, value]) => [name, value(counts)]);
  return Object.fromEntries(entries) as Record<keyof N, number>;
}

/** Counts of a queue pair; they only grow, from its creation to its end. */
export interface QueuePairCounters extends QpCounters {
  /** Under rxe's names. */
  readonly rxe: Record<keyof typeof RXE, number>;
  /** Under mlx5's names. */
  readonly mlx5: Record<keyof typeof MLX5, number>;
}

/** Counts of a device: of packets that were nobody's, and those of all queue pairs that there are or were. */
export interface DeviceCounters extends AdapterCounts {
  /** `link_downed`: PORT_ERR events. */
  readonly rxe: QueuePairCounters['rxe'] & { link_downed: number };
  /** `rx_icrc_encapsulated`: packets that were dropped for their ICRC, `icrcErrors` and `icrcOutOfWindow` together. */
  readonly mlx5: QueuePairCounters['mlx5'] & { rx_icrc_encapsulated: number };
  /** The link's own counts; which there are depends on the link. */
  readonly link: Record<string, number>;
}

export function queuePairCounters(counts: QpCounters): QueuePairCounters {
  const all = { ...counts, acceptedPackets: counts.receivedPackets };
  return { ...counts, rxe: named(RXE, all), mlx5: named(MLX5, all) };
}

export function deviceCounters(
  counts: AdapterCounts,
  link: Record<string, number>,
  linkDowned: number,
): DeviceCounters {
  const rx_icrc_encapsulated = counts.icrcErrors + counts.icrcOutOfWindow;
  return {
    ...counts,
    rxe: { ...named(RXE, counts), link_downed: linkDowned },
    mlx5: { ...named(MLX5, counts), rx_icrc_encapsulated },
    link,
  };
}
