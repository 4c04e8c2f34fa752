// The data phase of one size: who posts what, and when it is over.

/** ms without any progress until datagrams count as lost. */
const LOST = 2_000;

/** Address of message `n`: it advances by cache lines inside the agreed cycle, as long as two messages fit into it. */
function stepOf(n, size, { cycle, line }) {
  if (size > cycle / 2) return 0;
  const step = Math.ceil(Math.max(size, 1) / line) * line;
  return (n % Math.floor(cycle / step)) * step;
}

/** The counts of a run, and its loops. */
export class Run {
  #end;
  #size;
  #test;
  #sent;
  #completed;
  #posted;
  #received;
  #progress = performance.now();

  constructor(endpoint, size) {
    this.#end = endpoint;
    this.#size = size;
    this.#test = endpoint.test;
    const none = () => endpoint.qps.map(() => 0);
    [this.#sent, this.#completed, this.#posted, this.#received] = [none(), none(), none(), none()];
  }

  /** This side takes messages that consume receives. */
  get #takes() {
    const { verb, immediate, kind, role, duplex } = this.#test;
    return (verb === 'send' || immediate) && (kind === 'lat' || role === 'server' || duplex);
  }

  /** Posts receives, as many as fit. */
  prepare() {
    if (!this.#takes) return;
    const { depth, iters, seconds } = this.#test;
    for (const [i] of this.#end.qps.entries()) {
      while (this.#posted[i] < this.#received[i] + depth && (seconds || this.#posted[i] < iters))
        this.#postReceive(i);
    }
  }

  #postReceive(i) {
    const { qps, region, headroom, agreed } = this.#end;
    const offset = this.#end.receiveOffset(i) + stepOf(this.#posted[i]++, this.#size, agreed);
    const length = this.#test.verb === 'send' ? this.#size + headroom : 0;
    qps[i].postRecv({ wrId: i, sgList: length ? [{ mr: region, offset, length }] : [] });
  }

  #post(i, step = stepOf(this.#sent[i], this.#size, this.#end.agreed)) {
    const { qps, region } = this.#end;
    const { verb, atomic, immediate } = this.#test;
    this.#sent[i]++;
    const sgList = [{ mr: region, offset: this.#end.sendOffset(i) + step, length: this.#size }];
    const common = { wrId: i, signaled: true, sgList, ...this.#end.target(i, step) };
    qps[i].postSend(
      {
        send: () => ({ opcode: 'SEND', ...common }),
        read: () => ({ opcode: 'RDMA_READ', ...common }),
        write: () =>
          immediate
            ? { opcode: 'RDMA_WRITE_WITH_IMM', immData: 0, ...common }
            : { opcode: 'RDMA_WRITE', ...common },
        atomic: () =>
          atomic === 'FETCH_AND_ADD'
            ? { opcode: 'ATOMIC_FETCH_AND_ADD', compareAdd: 1n, ...common }
            : { opcode: 'ATOMIC_CMP_AND_SWP', compareAdd: 0n, swap: 0n, ...common },
      }[verb](),
    );
  }

  /** Takes completions of a queue into the counts; throws for one that failed. */
  #poll(cq, counts) {
    const wcs = cq.poll(64);
    for (const wc of wcs) {
      if (!wc.ok) throw new Error(`a work request of queue pair ${wc.wrIdNumber} ended with ${wc.status}`);
      counts[wc.wrIdNumber]++;
    }
    if (wcs.length > 0) this.#progress = performance.now();
    return wcs.length;
  }

  async #pause() {
    if (performance.now() - this.#progress > this.#test.patience)
      throw new Error('the data phase stands still');
    await this.#end.turn();
  }

  /** Runs it: `messages` in `seconds`, and `iters` of the report. */
  async play() {
    this.#progress = performance.now();
    const { kind, verb, role } = this.#test;
    if (kind === 'bw') return this.#bandwidth();
    const initiates =
      verb === 'read' || verb === 'atomic' || role === (verb === 'send' ? 'client' : 'server');
    return this.#latency(initiates);
  }

  async #bandwidth() {
    const { role, duplex, iters, seconds, margin, depth } = this.#test;
    const sends = role === 'client' || duplex;
    const takes = this.#takes;
    const started = performance.now();
    let first = sends ? started : 0;
    let sampled = 0;
    const all = (counts) => counts.every((count) => count >= iters);
    for (;;) {
      const before = performance.now();
      const over = seconds > 0 && first > 0 && before > first + seconds * 1000;
      if (over && this.#sent.every((count, i) => count === this.#completed[i])) break;
      if (!seconds && (!sends || all(this.#completed)) && (!takes || all(this.#received))) break;
      if (sends && !over) {
        for (const [i] of this.#sent.entries()) {
          while (this.#sent[i] < this.#completed[i] + depth && (seconds || this.#sent[i] < iters))
            this.#post(i);
        }
      }
      const done = sends ? this.#poll(this.#end.sendCq, this.#completed) : 0;
      const got = takes ? this.#poll(this.#end.recvCq, this.#received) : 0;
      if (got > 0) first ||= performance.now();
      if (takes) this.prepare();
      const inside =
        first > 0 && before > first + margin * 1000 && before < first + (seconds - margin) * 1000;
      if (inside) sampled += sends ? done : got;
      if (done + got === 0 && this.#areLost(takes)) break;
      if (done + got === 0) await this.#pause();
      else await this.#end.turn();
    }
    const counted = sends ? this.#completed : this.#received;
    const messages = seconds ? sampled : counted.reduce((sum, count) => sum + count, 0);
    const elapsed = seconds ? seconds - 2 * margin : (performance.now() - started) / 1000;
    const perPair = seconds ? sampled : iters;
    return { size: this.#size, iters: perPair, messages, seconds: elapsed, received: [...this.#received] };
  }

  /** Messages that are not repeated may be lost: then nothing has come for a while. */
  #areLost(takes) {
    const unreliable = this.#test.connection !== 'RC';
    return takes && unreliable && performance.now() - this.#progress > LOST;
  }

  /** One message at a time; `initiates`: this side sends the first. Times in µs of a whole round, where there is one. */
  async #latency(initiates) {
    const { iters, verb, seconds } = this.#test;
    const alone = verb === 'read' || verb === 'atomic';
    const times = [];
    const until = performance.now() + seconds * 1000;
    for (let n = 1; seconds ? performance.now() < until : n <= iters; n++) {
      const start = performance.now();
      if (!initiates) await this.#await(n);
      await this.#sendOne(n);
      if (initiates && !alone) await this.#await(n);
      times.push((performance.now() - start) * 1000);
    }
    return { size: this.#size, iters: times.length, messages: times.length, seconds, times };
  }

  /** Posts message `n` and waits until it has completed: a WRITE carries the number in its last byte. */
  async #sendOne(n) {
    const { memory, sendCq } = this.#end;
    const last = this.#end.sendOffset(0) + this.#size - 1;
    if (this.#test.verb === 'write') memory[last] = n & 0xff;
    this.#post(0, 0);
    while (this.#completed[0] < this.#sent[0]) {
      if (this.#poll(sendCq, this.#completed) === 0) await this.#pause();
    }
  }

  /** Waits for message `n` of the peer: in memory, or by its completion. */
  async #await(n) {
    const { memory, recvCq } = this.#end;
    const last = this.#end.receiveOffset(0) + this.#size - 1;
    if (this.#test.verb === 'write' && !this.#test.immediate) {
      while (memory[last] !== (n & 0xff)) await this.#pause();
      this.#progress = performance.now();
      return;
    }
    while (this.#received[0] < n) {
      if (this.#poll(recvCq, this.#received) === 0) await this.#pause();
    }
    this.prepare();
  }
}
