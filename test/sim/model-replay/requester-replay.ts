/**
 * The model's requester against the real one: what the client program posted, and the replies that reached
 * it, give packet by packet what rxe sent.
 *
 * rxe's clock is its own: a reply that arrived may be looked at a little later, and its timer ticks in
 * jiffies. So for each packet of the capture the replay looks for an explanation: how many of the
 * replies that had arrived by then the requester had looked at, and whether its timer had fired. If the
 * requester's own host loses packets before the capture sees them, packets of the model may be missing
 * between two of the capture.
 */
import {
  advanceTime,
  createRequester,
  type ModelCompletion,
  type ModelSendRequest,
  nextDeadline,
  type Plan,
  planPacket,
  postSend,
  type QuirkName,
  type Requester,
  receiveResponse,
  sendPacket,
  timeOut,
} from '@node-roce/sim';
import { ackTimeoutMicroseconds } from '@node-roce/wire';
import { inferPathMtu } from './inference.ts';
import { inferPosts, probePosts } from './posts.ts';
import { option, type Sidecar } from './sidecar.ts';
import { type Connection, type Side, samePacket, show, type TracePacket } from './trace.ts';

export interface RequesterReplay {
  differences: string[];
  quirks: Set<QuirkName>;
  compared: number;
  completions: ModelCompletion[];
}

/** Everything that changes while the replay runs; a structured clone of it is a branch of the search. */
interface State {
  requester: Requester;
  /** Requests not posted yet. */
  waiting: ModelSendRequest[];
  completions: ModelCompletion[];
  postedCount: number;
  /** Replies looked at so far. */
  heard: number;
}

/** Packets lost in a row that the search believes in. */
const MAX_LOST = 40;

/** rxe looks at replies promptly or late: the simpler of the two explanations counts. */
export function replayRequester(connection: Connection, side: Side, sidecar: Sidecar): RequesterReplay {
  const [prompt, late] = [true, false].map((order) => replayInOrder(connection, side, sidecar, order));
  const cost = ({ differences, quirks }: RequesterReplay) => differences.length * 100 + quirks.size;
  return cost(late) < cost(prompt) ? late : prompt;
}

function replayInOrder(
  connection: Connection,
  side: Side,
  sidecar: Sidecar,
  prompt: boolean,
): RequesterReplay {
  const requests = connection.packets.filter((p) => p.from === side && p.isRequest);
  const replies = connection.packets.filter((p) => p.from !== side && !p.isRequest);
  const { batch, posts } = sidecar.isProbe ? probePosts(sidecar) : inferPosts(requests);
  const replay = new Replay(replies, batch, sidecar.isLossy[side], prompt);
  const firstPsn = sidecar.psns[side].get(connection.qpn[side]) ?? requests[0].packet.psn;
  let state = replay.start(connection, side, sidecar, posts, firstPsn);
  const differences: string[] = [];
  const quirks = new Set<QuirkName>();
  for (const request of requests) {
    const found = replay.explain(state, request);
    if (found === undefined) {
      const plan = planPacket(state.requester);
      const would = typeof plan === 'string' ? `nothing (${plan})` : show(plan.packet);
      differences.push(`#${request.number}: ${show(request.packet)}; the model sends ${would}`);
      break;
    }
    state = found.state;
    if (found.quirk !== undefined) quirks.add(found.quirk);
  }
  if (differences.length === 0) replay.finish(state);
  return { differences, quirks, compared: requests.length, completions: state.completions };
}

/** A jiffy of the captured kernel, µs. */
const JIFFY = 4000;

/** Not before T rounded down to jiffies: it was rounded. Before that: it was not started anew. */
function earlyTimerQuirk({ requester }: State, request: TracePacket): QuirkName {
  const timeout = ackTimeoutMicroseconds(requester.config.timeout);
  const rounded = nextDeadline(requester) - timeout + Math.floor(timeout / JIFFY) * JIFFY;
  return request.time >= rounded ? 'timerRoundedDown' : 'timerNotRestarted';
}

class Replay {
  readonly #replies: TracePacket[];
  readonly #batch: boolean;
  readonly #lossy: boolean;
  readonly #prompt: boolean;

  constructor(replies: TracePacket[], batch: boolean, lossy: boolean, prompt: boolean) {
    this.#prompt = prompt;
    this.#replies = replies;
    this.#batch = batch;
    this.#lossy = lossy;
  }

  start(
    connection: Connection,
    side: Side,
    sidecar: Sidecar,
    posts: ModelSendRequest[],
    firstPsn: number,
  ): State {
    const command = sidecar.isProbe ? sidecar.command[side] : [];
    const number = (letter: string, fallback: number) => Number(option(command, letter) ?? fallback);
    const requester = createRequester(
      {
        destQpn: connection.qpn[side === 'A' ? 'B' : 'A'],
        pathMtu: inferPathMtu(connection),
        timeout: number('T', 14),
        retryCnt: number('y', 7),
        rnrRetry: number('Y', 7),
        maxRdAtomic: number('R', sidecar.isProbe ? 16 : 128),
        flowControl: false,
        window: 128,
        timerFactor: 1,
      },
      firstPsn,
    );
    const state: State = { requester, waiting: posts, completions: [], postedCount: 0, heard: 0 };
    this.#post(state);
    return state;
  }

  /** All at once in a batch, else one after the other's completion, as rxprobe does it. */
  #post(state: State): void {
    while (state.waiting.length > 0 && (this.#batch || state.completions.length === state.postedCount)) {
      state.postedCount++;
      state.completions.push(...postSend(state.requester, state.waiting.shift()!));
    }
  }

  #hear(state: State, reply: TracePacket): void {
    this.#passTime(state, reply.time);
    state.completions.push(...receiveResponse(state.requester, reply.packet, reply.time));
    state.heard++;
    this.#post(state);
  }

  /** Only the end of an RNR wait comes by itself here; the timer is one of the explanations. */
  #passTime(state: State, time: number): void {
    if (state.requester.rnrUntil !== undefined) advanceTime(state.requester, time);
  }

  /** The state in which the model sends this packet next, with the packet sent. */
  explain(state: State, request: TracePacket): { state: State; quirk?: QuirkName } | undefined {
    const arrived = this.#replies.filter(({ time }) => time <= request.time).length;
    for (const timer of ['not', 'due', 'early'] as const) {
      for (let late = 0; late <= arrived - state.heard; late++) {
        const heard = this.#prompt ? arrived - late : state.heard + late;
        const branch = structuredClone(state);
        while (branch.heard < heard) this.#hear(branch, this.#replies[branch.heard]);
        this.#passTime(branch, request.time);
        if (timer === 'due' && nextDeadline(branch.requester) > request.time) continue;
        if (timer !== 'not') {
          branch.completions.push(...timeOut(branch.requester, request.time));
          this.#post(branch);
        }
        if (!this.#sendUntil(branch, request)) continue;
        return timer === 'early'
          ? { state: branch, quirk: earlyTimerQuirk(state, request) }
          : { state: branch };
      }
    }
    return undefined;
  }

  #sendUntil(state: State, request: TracePacket): boolean {
    const { requester } = state;
    for (let lost = 0; lost <= (this.#lossy ? MAX_LOST : 0); lost++) {
      const plan: Plan | string = planPacket(requester);
      if (typeof plan === 'string') return false;
      sendPacket(requester, plan, request.time);
      if (samePacket(plan.packet, request.packet)) return true;
    }
    return false;
  }

  /** The capture is over: the rest of the replies, then the timer until it gives up. */
  finish(state: State): void {
    while (state.heard < this.#replies.length) this.#hear(state, this.#replies[state.heard]);
    while (nextDeadline(state.requester) < Number.POSITIVE_INFINITY) {
      state.completions.push(...advanceTime(state.requester, nextDeadline(state.requester)));
    }
  }
}
