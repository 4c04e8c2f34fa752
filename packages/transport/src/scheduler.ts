/** Who may add packets to the next batch, in which order. */

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

  /** Whose turn is next. */
  get first(): T | undefined {
    return this.#ring[this.#head]?.owner;
  }

  /** Takes the oldest turn; there is one. */
  shift(): T {
    const turn = this.#ring[this.#head]!;
    this.#ring[this.#head] = undefined;
    this.#head = (this.#head + 1) & (this.#ring.length - 1);
    this.#length--;
    turn.leave();
    return turn.owner;
  }

  #grow(): void {
    const old = this.#ring;
    const grown: (Turn<T> | undefined)[] = new Array(old.length * 2).fill(undefined);
    for (let i = 0; i < old.length; i++) grown[i] = old[(this.#head + i) & (old.length - 1)];
    this.#ring = grown;
    this.#head = 0;
  }
}
