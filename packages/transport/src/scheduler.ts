/** The order in which owners add packets to the next batch. */
import type { TxBatch } from './batch.ts';

/** Requests, and replies, that one sender may add in one turn. */
const TURN_PACKETS = 128;
/**
 * Replies that all senders together may add in one round, and one sender at least. The ACK timer of a requester whose READ waits
 * for its turn runs, and starts anew with each response: so with many READs to answer, the turns are short. At 1 Gbit/s this is
 * 67 ms of packets of 4096 bytes, half of what timeout 14 allows.
 */
const ROUND_REPLIES = 2048;
const TURN_REPLIES_MIN = 4;

/** An object that has turns: a queue pair. */
export interface Sender {
  readonly destroyed: boolean;
  /** Asks for a turn among the requests. */
  wantsTurn(): void;
  /** Whether replies wait to be sent. */
  readonly owesReplies: boolean;
  /** Whether it has no requests, and asks for a turn with the next one. */
  readonly sleeps: boolean;
  /** Whether its requests may leave before the ACK of the message that they answer. */
  readonly answersFirst: boolean;
  /** Adds up to `budget` requests to the batch; returns how many. */
  sendRequests(batch: TxBatch, budget: number): number;
  /** Adds up to `budget` replies to the batch, without `reads` up to the first READ response; returns how many. */
  sendReplies(batch: TxBatch, budget: number, reads: boolean): number;
}

/** Both places of a sender. */
export class SenderTurns {
  readonly bulk: Turn<Sender>;
  readonly replies: Turn<Sender>;

  constructor(sender: Sender) {
    this.bulk = new Turn(sender);
    this.replies = new Turn(sender);
  }
}

/**
 * Two classes of turns: short replies (ACKs, NAKs, atomic results), which go first and wait for no one's requests; and
 * requests and READ responses, round robin. Promise: a sender that was scheduled has its turn.
 */
export class Scheduler {
  readonly #replies = new TurnQueue<Sender>();
  readonly #bulk = new TurnQueue<Sender>();

  /** Whether anyone waits for a turn. */
  get busy(): boolean {
    return this.#bulk.length > 0 || this.#replies.length > 0;
  }

  /** A sender may have requests or READ responses to send. */
  wantsTurn(turns: SenderTurns): void {
    this.#bulk.push(turns.bulk);
  }

  /** A sender owes its peer a reply. */
  wantsReplyTurn(turns: SenderTurns): void {
    this.#replies.push(turns.replies);
  }

  /** Gives turns until all had theirs and have nothing more to send, or the batch is full. */
  fill(batch: TxBatch): void {
    // Where one sender alone has something to send, the answer of a program that polls leaves before the ACK of the message
    // that it answers: the peer waits for the answer. Otherwise ACKs go first, as those of hardware do: `ib_send_lat -e` of
    // perftest 4.5 waits for ever if the answer wakes it before the ACK is there (docs/quirks.md).
    const alone = this.#bulk.length === 1 && this.#replies.length === 1;
    if (alone && this.#bulk.first === this.#replies.first && this.#bulk.first?.answersFirst)
      this.#fillBulk(batch);
    this.#fillReplies(batch);
    if (this.#bulk.length > 0) this.#fillBulk(batch);
  }

  /** Each sender that owes replies has one turn. */
  #fillReplies(batch: TxBatch): void {
    for (let turns = this.#replies.length; turns > 0 && !batch.full; turns--) {
      const turn = this.#replies.shift();
      const sender = turn.owner;
      if (sender.destroyed) continue;
      sender.sendReplies(batch, TURN_PACKETS, false);
      if (!sender.owesReplies) continue;
      // A READ response is next, which waits among the requests; or the batch is full.
      if (batch.full) this.#replies.push(turn);
      else sender.wantsTurn();
    }
  }

  /** Each sender has one turn a round; who had nothing to send leaves. */
  #fillBulk(batch: TxBatch): void {
    const bulk = this.#bulk;
    let round = batch.count;
    let turns = bulk.length;
    let replies = repliesInTurn(turns);
    while (turns-- > 0 && !batch.full) {
      const turn = bulk.shift();
      const sender = turn.owner;
      if (sender.destroyed) continue;
      // Where replies are owed, requests leave half of the room to them, however small the batch is.
      const room = batch.capacity - batch.count;
      const owes = sender.owesReplies;
      const most = owes ? Math.min(TURN_PACKETS, (room + 1) >> 1) : TURN_PACKETS;
      const requests = sender.sendRequests(batch, most);
      const sent = requests + (owes ? sender.sendReplies(batch, replies, true) : 0);
      // A turn for nothing costs as much as one that sends, where queue pairs are many.
      const isOver = sender.sleeps && !(owes && sender.owesReplies);
      // A batch that is full may be why nothing was added.
      if ((sent > 0 || batch.full) && !isOver) bulk.push(turn);
      if (turns > 0 || batch.count === round) continue;
      round = batch.count;
      turns = bulk.length;
      replies = repliesInTurn(turns);
    }
  }
}

/** Replies that each of so many senders may add in one turn. */
function repliesInTurn(senders: number): number {
  return Math.max(TURN_REPLIES_MIN, Math.min(TURN_PACKETS, (ROUND_REPLIES / senders) | 0));
}

/** A place in one of the scheduler's queues; its owner has one, taken once. */
export class Turn<T> {
  readonly owner: T;
  #waiting = false;

  constructor(owner: T) {
    this.owner = owner;
  }

  /** Takes the place. False if it was taken already. */
  enter(): boolean {
    if (this.#waiting) return false;
    this.#waiting = true;
    return true;
  }

  leave(): void {
    this.#waiting = false;
  }
}

/** Turns in the order in which they were asked for: a ring, so that taking one costs the same however many wait. */
export class TurnQueue<T> {
  #ring: (Turn<T> | undefined)[] = new Array(64).fill(undefined);
  #head = 0;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** Asks for a turn; a second one before the first was taken is the same. */
  push(turn: Turn<T>): void {
    if (!turn.enter()) return;
    if (this.#length === this.#ring.length) this.#grow();
    this.#ring[(this.#head + this.#length++) & (this.#ring.length - 1)] = turn;
  }

  /** The owner of the next turn. */
  get first(): T | undefined {
    return this.#ring[this.#head]?.owner;
  }

  /** Takes the oldest turn; there is one. */
  shift(): Turn<T> {
    const turn = this.#ring[this.#head] as Turn<T>;
    this.#ring[this.#head] = undefined;
    this.#head = (this.#head + 1) & (this.#ring.length - 1);
    this.#length--;
    turn.leave();
    return turn;
  }

  #grow(): void {
    const old = this.#ring;
    const grown: (Turn<T> | undefined)[] = new Array(old.length * 2).fill(undefined);
    for (let i = 0; i < old.length; i++) grown[i] = old[(this.#head + i) & (old.length - 1)];
    this.#ring = grown;
    this.#head = 0;
  }
}
