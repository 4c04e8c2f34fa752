/** Completion queues and channels. */
import { WorkCompletion } from '@node-roce/verbs-api';
import { createCq } from './create-cq.ts';
import { failed, minusOne, pointer, status, statusNow } from './errno.ts';
import { ibv_comp_channel, type ibv_context, ibv_cq, structOf, verbsOf } from './objects.ts';
import type { ibv_wc } from './structs.ts';

/** ibv_create_comp_channel(3). There is no `fd`: `ibv_get_cq_event` is awaited. */
export function ibv_create_comp_channel(context: ibv_context): Promise<ibv_comp_channel | null> {
  return pointer(() => new ibv_comp_channel(context, verbsOf('context', context).createCompChannel()));
}

/** ibv_destroy_comp_channel(3): EBUSY while completion queues use it. */
export function ibv_destroy_comp_channel(channel: ibv_comp_channel): Promise<number> {
  return status(() => verbsOf('channel', channel).destroy());
}

/**
 * ibv_create_cq(3): `cqe` of what is returned is at least what was asked for. EINVAL beyond `max_cqe`, or for a
 * `comp_vector` beyond `context.num_comp_vectors`.
 */
export function ibv_create_cq(
  context: ibv_context,
  cqe: number,
  cq_context: unknown = null,
  channel: ibv_comp_channel | null = null,
  comp_vector = 0,
): Promise<ibv_cq | null> {
  return pointer(async () => {
    const verbs = await createCq(context, cqe, cq_context, channel, comp_vector);
    return new ibv_cq(context, channel, verbs);
  });
}

/** ibv_resize_cq(3): EINVAL below the completions that were not polled. */
export function ibv_resize_cq(cq: ibv_cq, cqe: number): Promise<number> {
  return status(() => verbsOf('cq', cq).resize(cqe));
}

/** ibv_destroy_cq(3): EBUSY while queue pairs use it. Waits for events that were taken to be acknowledged. */
export function ibv_destroy_cq(cq: ibv_cq): Promise<number> {
  return status(async () => {
    await verbsOf('cq', cq).destroy();
    cq.parent_domain?.gone(cq);
  });
}

/** The completion that a poll fills before it is copied into the caller's structs. */
let polled: WorkCompletion[] = [];

/**
 * ibv_poll_cq(3): takes up to `num_entries` completions, into the elements of `wc` (made where they are missing), or
 * into `wc` itself if it is no array. With the engine in this thread an empty queue makes it run once, so that a loop
 * of polls makes progress; over the dgram link the event loop has to turn, too.
 *
 * @returns how many; −1 with errno EIO where the queue overran
 */
export function ibv_poll_cq(
  cq: ibv_cq,
  num_entries: number,
  wc: Partial<ibv_wc>[] | Partial<ibv_wc>,
): number {
  const list = Array.isArray(wc) ? wc : [wc];
  const most = Array.isArray(wc) ? num_entries : Math.min(num_entries, 1);
  if (polled.length !== most) polled = Array.from({ length: most }, () => new WorkCompletion());
  try {
    const count = verbsOf('cq', cq).pollInto(polled);
    for (let i = 0; i < count; i++) {
      list[i] ??= {};
      fill(list[i], polled[i]);
    }
    return count;
  } catch (error) {
    failed(error);
    return -1;
  }
}

function fill(wc: Partial<ibv_wc>, from: WorkCompletion): void {
  wc.wr_id = from.wrId;
  wc.status = from.statusCode;
  wc.opcode = from.opcodeCode;
  wc.vendor_err = from.vendorErr;
  wc.byte_len = from.byteLen;
  // One union in C.
  wc.imm_data = from.immediate;
  wc.invalidated_rkey = from.immediate;
  wc.qp_num = from.qpNum;
  wc.src_qp = from.srcQp;
  wc.wc_flags = from.flags;
  wc.pkey_index = 0;
  wc.slid = 0;
  wc.sl = 0;
  wc.dlid_path_bits = 0;
}

/** ibv_req_notify_cq(3): one event at the next completion, or the next solicited or failed one. 0. */
export function ibv_req_notify_cq(cq: ibv_cq, solicited_only: number | boolean): number {
  return statusNow(() => verbsOf('cq', cq).requestNotify({ solicitedOnly: Boolean(solicited_only) }));
}

/**
 * ibv_get_cq_event(3): waits for the channel's next event. 0; −1 with errno ECANCELED where the channel or the device
 * is closed.
 *
 * @param cq element 0 is set to the queue (`struct ibv_cq **cq`)
 * @param cq_context element 0 is set to its context
 */
export function ibv_get_cq_event(
  channel: ibv_comp_channel,
  cq: (ibv_cq | undefined)[],
  cq_context?: unknown[] | null,
): Promise<0 | -1> {
  return minusOne(async () => {
    const found = structOf(await verbsOf('channel', channel).getEvent()) as ibv_cq;
    cq[0] = found;
    if (cq_context) cq_context[0] = found.cq_context;
  });
}

/** ibv_ack_cq_events(3): `ibv_destroy_cq` waits until every event that was taken is acknowledged. */
export function ibv_ack_cq_events(cq: ibv_cq, nevents: number): void {
  verbsOf('cq', cq).ackEvents(nevents);
}
