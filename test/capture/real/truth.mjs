// The truth of a recorded run: which frames are retransmissions, why, and where the loss was.
//
// It rests on three witnesses, none of which guesses: the log of the link (what became of each frame), the captures of both taps (what
// each frame is), and the trace of each guest's kernel (when rxe sent, took an answer in, and when its timers fired). The analysis has
// one capture only. Nothing of packages/ is imported here.
import { isResponse, Op, parseRoce, psnAdd, psnDiff } from './pcap.mjs';

/** A trigger this long before the last one may have caused the go-back-N as well. */
const SAME_MOMENT_S = 0.02;

const SEQUENCE_NAK = 0x60;

/** Events of a guest's trace, oldest first: { time, kind: tx|rxc|rt|rnr, qp?, psn?, op?, dqp?, timer? }. Pointers are bigints. */
export function parseTrace(text) {
  const events = [];
  for (const line of text.split('\n')) {
    const match = /\s(\d+\.\d+): (tx|rxc|rt|rnr): \([^)]*\) (.*)$/.exec(line);
    if (!match) continue;
    const [, time, kind, rest] = match;
    const field = Object.fromEntries(rest.split(' ').map((pair) => pair.split('=')));
    const event = { time: Number(time), kind };
    if (field.t) event.timer = BigInt(field.t);
    if (field.qp) event.qp = BigInt(field.qp);
    if (field.psn) event.psn = Number(field.psn) & 0xffffff;
    if (field.op) event.op = Number(field.op);
    if (field.dqp) event.dqp = Number.parseInt(field.dqp, 16);
    events.push(event);
  }
  return events;
}

/** Bytes of a word that the little-endian guest read from the big-endian header: 0x11000000 is QP 0x11. */
const qpOf = (word) => ((word >>> 24) & 0xff) | ((word >>> 8) & 0xff00) | ((word & 0xff00) << 8);

/** Gives the n-th event of a key the n-th frame of that key. Returns how many events and frames found no partner. */
function match(events, eventKey, frames, frameKey, assign) {
  const waiting = new Map();
  for (const frame of frames) {
    const key = frameKey(frame);
    waiting.set(key, [...(waiting.get(key) ?? []), frame]);
  }
  let lonely = 0;
  for (const event of events) {
    const frame = waiting.get(eventKey(event))?.shift();
    if (frame) assign(event, frame);
    else lonely++;
  }
  let left = 0;
  for (const frames of waiting.values()) left += frames.length;
  return { events: lonely, frames: left };
}

/**
 * Derives the truth. `log`: objects of the link's log; `taps`: { a, b } frames of readCapture; `traces`: { a, b } texts; `pathMtu` in bytes.
 * Returns { frames, events, unmatched, lags }.
 */
export function deriveTruth({ log, taps, traces, pathMtu }) {
  const frames = log.map((entry) => {
    const own = entry.in[0];
    const other = entry.from === 'a' ? 'b' : 'a';
    const seen = own ? taps[entry.from][own.frame - 1] : taps[other][entry.out[0].frame - 1];
    return {
      id: entry.id,
      from: entry.from,
      injected: entry.injected,
      lost: entry.lost,
      own: own?.frame ?? null,
      time: own ? BigInt(own.ns) : BigInt(entry.out[0].ns),
      arrivals: entry.out
        .map(({ frame, ns, how }) => ({ frame, time: BigInt(ns), how }))
        .sort((x, y) => (x.time < y.time ? -1 : 1)),
      packet: parseRoce(seen.bytes),
      marked: entry.marked === true,
    };
  });
  frames.sort((x, y) => (x.time < y.time ? -1 : x.time > y.time ? 1 : x.id - y.id));
  const events = [];
  const unmatched = {};
  const lags = {};
  for (const side of ['a', 'b']) {
    const trace = parseTrace(traces[side]);
    const sent = frames.filter((f) => f.from === side && !f.injected && f.own !== null);
    // rxe checks the ICRC before it queues an answer: damaged frames never reach the completer.
    const received = frames
      .filter(
        (f) =>
          f.from !== side &&
          f.packet &&
          isResponse(f.packet.op) &&
          f.packet.service === 0 &&
          f.packet.qp !== 1,
      )
      .flatMap((f) =>
        f.arrivals
          .filter(({ how }) => how !== 'damaged')
          .map((arrival) => ({ frame: f, time: arrival.time })),
      )
      .sort((x, y) => (x.time < y.time ? -1 : 1));
    const key = (qp, psn, op) => `${qp}/${psn}/${op}`;
    const tx = trace.filter(({ kind }) => kind === 'tx');
    const rxc = trace.filter(({ kind }) => kind === 'rxc');
    const atSend = match(
      tx,
      (e) => key(qpOf(e.dqp), e.psn, e.op),
      sent,
      (f) => key(f.packet.qp, f.packet.psn, f.packet.opcode),
      (e, f) => {
        e.frame = f;
      },
    );
    const atReceive = match(
      rxc,
      (e) => key('', e.psn, e.op),
      received,
      (r) => key('', r.frame.packet.psn, r.frame.packet.opcode),
      (e, r) => {
        e.frame = r.frame;
      },
    );
    unmatched[side] = { sent: atSend, received: atReceive };
    lags[side] = tx.filter(({ frame }) => frame).map(({ time, frame }) => Number(frame.time) / 1e9 - time);
    const pointers = [...new Set(tx.map(({ qp }) => qp))].sort((x, y) => (x < y ? -1 : 1));
    for (const event of trace) {
      // A timer is a field of its queue pair: the pair with the greatest address below it.
      if (event.timer !== undefined)
        event.qp = pointers.findLast((qp) => qp < event.timer && event.timer - qp < 0x4000n);
    }
    for (const qp of pointers) {
      events.push(
        ...goBacks(
          side,
          trace.filter((e) => e.qp === qp),
          frames,
          pathMtu,
        ),
      );
    }
  }
  events.sort((x, y) => (x.time < y.time ? -1 : 1));
  events.forEach((event, i) => {
    event.id = i + 1;
  });
  return { frames, events, unmatched, lags };
}

/** The goings back of one queue pair's requester, from its own events in the order in which they happened. */
function goBacks(side, trace, frames, pathMtu) {
  const found = [];
  let next; // PSN after the last request sent
  let highest; // PSN after the newest
  let unacknowledged; // oldest PSN without an answer
  let triggers = [];
  let current;
  const outstanding = new Map(); // first PSN → { end, kind }, of READs and atomics
  const copies = []; // requests sent, oldest first: { start, end, frame, time }
  let sentAt = 0; // when the last request was sent, by the trace's clock
  let refusal; // the last RNR NAK
  const timers = []; // that fired, and brought about no go-back-N so far
  const take = (event, kind, frame = event.frame) => triggers.push({ kind, time: event.time, frame });
  for (const event of trace) {
    if (event.kind === 'rt') {
      // A timer that fires while nothing is outstanding does nothing (rxe_comp.c, COMPST_ERROR_RETRY), unless rxe_completer runs late,
      // when the next message has been sent.
      timers.push(event);
      if (highest !== undefined && psnDiff(highest, unacknowledged) > 0) take(event, 'timeout');
      continue;
    }
    if (event.kind === 'rnr') {
      take(event, 'rnr', refusal);
      continue;
    }
    if (event.frame?.packet?.service !== 0 || event.frame.packet.qp === 1) continue;
    const { packet } = event.frame;
    if (event.kind === 'rxc') {
      if (highest === undefined) continue;
      const { op, psn, syndrome } = packet;
      if (op === Op.ACK && syndrome === SEQUENCE_NAK) {
        // One that an answer sent later has overtaken is discarded (rxe_comp.c, check_psn).
        if (psnDiff(psn, unacknowledged) < 0) continue;
        take(event, 'sequence-nak');
        unacknowledged = psn;
        continue;
      }
      if (op === Op.ACK && syndrome >= 0x20) {
        refusal = event.frame;
        if (psnDiff(psn, unacknowledged) > 0) unacknowledged = psn;
        continue;
      }
      // The oldest READ or atomic that still waits: an answer past what it waits for is an implied NAK (§9.7.5.2.8).
      const oldest = [...outstanding.values()].sort((x, y) => psnDiff(x.next, y.next))[0];
      if (oldest && psnDiff(psn, oldest.next) > 0) {
        take(event, 'implied-nak');
        triggers.at(-1).missing = oldest.next;
        continue;
      }
      if (op !== Op.ACK) {
        for (const [first, request] of outstanding) {
          if (psnDiff(psn, first) < 0 || psnDiff(psn, request.end) >= 0) continue;
          if (psn === request.next) request.next = psnAdd(psn, 1);
          if (request.next === request.end) outstanding.delete(first);
        }
      }
      if (psnDiff(psn, unacknowledged) >= 0) unacknowledged = psnAdd(psn, 1);
      continue;
    }
    if (isResponse(packet.op)) continue;
    const { psn } = packet;
    const length = packet.op === Op.READ ? Math.max(1, Math.ceil(packet.dmaLength / pathMtu)) : 1;
    const end = psnAdd(psn, length);
    if (highest === undefined) {
      highest = psn;
      next = psn;
      unacknowledged = psn;
    }
    const again = psnDiff(psn, highest) < 0;
    if (again && psn !== next) {
      if (triggers.length === 0 && timers.length > 0) take(timers.at(-1), 'timeout');
      const last = triggers.at(-1);
      // Several of them without a request in between: any may be the one.
      const near = triggers.filter(({ time }) => time > sentAt || last.time - time < SAME_MOMENT_S);
      const kinds = [...new Set(near.map(({ kind }) => kind))];
      current = {
        side,
        time: event.frame.time,
        psn,
        cause: last ? last.kind : 'unknown',
        possible: kinds.length > 0 ? kinds : ['unknown'],
        trigger: last?.frame ? last.frame.id : null,
        lost: last ? whatWasLost(side, last, unacknowledged, copies, frames, event) : { what: 'unknown' },
        frames: [],
      };
      found.push(current);
      triggers = [];
      if (current.cause === 'timeout') timers.shift();
    }
    if (again) {
      // Sent after a pause of the link's making, it may belong to no go-back-N that was seen: the capture begins inside.
      if (current) {
        current.frames.push(event.frame.id);
        event.frame.goBack = current;
      }
      event.frame.again = true;
    }
    sentAt = event.time;
    next = end;
    if (!again || psnDiff(end, highest) > 0) highest = psnDiff(end, highest) > 0 ? end : highest;
    copies.push({ psn, end, frame: event.frame, time: event.time });
    if (packet.op === Op.READ || packet.op === Op.CMP_SWAP || packet.op === Op.FETCH_ADD) {
      const known = [...outstanding.entries()].find(
        ([first, r]) => psnDiff(psn, first) >= 0 && psnDiff(psn, r.end) < 0,
      );
      if (!known) outstanding.set(psn, { end, next: psn });
    }
  }
  return found;
}

const fateOf = (frame) =>
  frame.lost
    ? 'lost'
    : frame.arrivals.some(({ how }) => how === 'passed' || how === 'duplicate')
      ? 'passed'
      : frame.arrivals.some(({ how }) => how === 'late')
        ? 'late'
        : 'damaged';

/** Finds the packet of the exchange that did not arrive: { what: request|response|ack|nothing|answer, fate, frame (id), psn }. */
function whatWasLost(side, trigger, unacknowledged, copies, frames, event) {
  if (trigger.kind === 'rnr') return { what: 'nothing' };
  const missing =
    trigger.kind === 'sequence-nak'
      ? trigger.frame.packet.psn
      : trigger.kind === 'implied-nak'
        ? trigger.missing
        : unacknowledged;
  const before = trigger.kind === 'sequence-nak' ? trigger.frame.time : event.frame.time;
  const request = copies.findLast(
    ({ psn, end, frame }) => psnDiff(missing, psn) >= 0 && psnDiff(missing, end) < 0 && frame.time < before,
  )?.frame;
  if (!request) return { what: 'unknown', psn: missing };
  const of = (what, frame) => ({ what, fate: fateOf(frame), frame: frame.id, psn: missing });
  if (trigger.kind === 'sequence-nak') {
    // Among the copies there may be one that was lost and one on its way when the NAK left: the NAK is for the one that was missing then.
    const lost = copies
      .filter(({ psn, frame }) => psn === missing && frame.time < before)
      .map(({ frame }) => frame)
      .findLast((frame) => fateOf(frame) !== 'passed');
    return lost
      ? of('request', lost)
      : reordered(request, copies)
        ? { ...of('request', request), fate: 'reordered' }
        : of('receiver', request);
  }
  if (fateOf(request) === 'lost' || fateOf(request) === 'damaged') return of('request', request);
  const answers = frames.filter(
    (f) =>
      f.from !== side &&
      !f.injected &&
      f.packet?.service === 0 &&
      isResponse(f.packet.op) &&
      f.time > request.time &&
      f.time < event.frame.time &&
      psnDiff(f.packet.psn, missing) >= 0 &&
      psnDiff(f.packet.psn, missing) < 0x1000,
  );
  const exact = answers.filter((f) => f.packet.psn === missing);
  const lost = (exact.length > 0 ? exact : answers).find((f) => fateOf(f) !== 'passed');
  if (lost) return of(lost.packet.op === Op.ACK ? 'ack' : 'response', lost);
  if (answers.length > 0) return { what: 'nothing', psn: missing };
  return { what: 'answer', psn: missing };
}

/** Whether a frame that passed came behind one that was sent after it. */
function reordered(frame, copies) {
  const arrived = frame.arrivals[0].time;
  return copies.some(
    (copy) =>
      copy.frame.time > frame.time &&
      copy.frame.arrivals[0] !== undefined &&
      copy.frame.arrivals[0].time < arrived,
  );
}

/** The truth as it is committed: frame numbers of each tap in place of ids. */
export function truthJson(truth, run) {
  const byId = new Map(truth.frames.map((f) => [f.id, f]));
  const at = (id) => {
    const frame = id === null || id === undefined ? undefined : byId.get(id);
    if (!frame) return null;
    const here = frame.own === null ? [] : [frame.own];
    const there = frame.arrivals.map((arrival) => arrival.frame);
    return frame.from === 'a' ? { from: 'a', a: here, b: there } : { from: 'b', a: there, b: here };
  };
  const kinds = (test) => truth.frames.filter(test).map((f) => at(f.id));
  return {
    ...run,
    frames: {
      a: Math.max(0, ...truth.frames.flatMap((f) => [...(at(f.id).a ?? [])])),
      b: Math.max(0, ...truth.frames.flatMap((f) => [...(at(f.id).b ?? [])])),
    },
    unmatched: truth.unmatched,
    lag: { a: lagOf(truth.lags.a), b: lagOf(truth.lags.b) },
    events: truth.events.map(({ id, side, psn, cause, possible, trigger, lost, frames }) => ({
      id,
      side,
      psn,
      cause,
      possible,
      trigger: at(trigger),
      lost: { ...lost, ...(lost.frame === undefined ? {} : { frame: at(lost.frame) }) },
      frames: frames.map(at),
    })),
    lost: kinds((f) => f.lost !== null),
    damaged: kinds((f) => f.arrivals.some(({ how }) => how === 'damaged')),
    late: kinds((f) => f.arrivals.some(({ how }) => how === 'late')),
    duplicated: kinds((f) => f.arrivals.some(({ how }) => how === 'duplicate')),
    marked: kinds((f) => f.marked),
    cnps: kinds((f) => f.injected === 'cnp'),
    sequenceNaks: kinds((f) => f.packet?.syndrome === SEQUENCE_NAK && f.packet.op === Op.ACK),
    rnrNaks: kinds((f) => f.packet?.op === Op.ACK && (f.packet.syndrome & 0xe0) === 0x20),
    fatalNaks: kinds(
      (f) => f.packet?.op === Op.ACK && f.packet.syndrome > SEQUENCE_NAK && f.packet.syndrome < 0x80,
    ),
    cm: truth.frames
      .filter((f) => f.packet?.attribute)
      .map((f) => ({ attribute: f.packet.attribute, ...at(f.id) })),
    pfc: kinds((f) => f.injected === 'pfc'),
  };
}

/** How much later than the least a frame came from the guest's kernel to the tap: { p95, max } in ms. A starved QEMU lets them wait. */
function lagOf(times) {
  const sorted = times.toSorted((x, y) => x - y);
  const ms = (index) => Math.round(((sorted[index] ?? 0) - (sorted[0] ?? 0)) * 10_000) / 10;
  return { p95: ms(Math.floor(sorted.length * 0.95)), max: ms(sorted.length - 1) };
}

/** Whether the times of a run are those of a network: no tap lags behind its guest by more. */
export const isTimely = ({ lag }) =>
  Math.max(lag.a.p95, lag.b.p95) <= 10 && Math.max(lag.a.max, lag.b.max) <= 35;

/** The truth as the text of its file: JSON with an event, or a packet, a line. */
export function truthText(value) {
  const lines = Object.entries(value).map(([key, item]) => {
    const text =
      Array.isArray(item) && item.length > 0 && typeof item[0] === 'object'
        ? `[\n${item.map((each) => `    ${JSON.stringify(each)}`).join(',\n')}\n  ]`
        : JSON.stringify(item);
    return `  ${JSON.stringify(key)}: ${text}`;
  });
  return `{\n${lines.join(',\n')}\n}\n`;
}
