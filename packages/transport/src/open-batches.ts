/** Batches with packets that the link has not looked at, and what is kept until it has. */

/**
 * Owns the list of open batches, and what was given back while one is open: numbers and memory that its packets may still name.
 *
 * Promise: nothing is released while a batch is open that was filled before it was given back.
 */
export class OpenBatches<Batch extends object> {
  readonly #batches: Batch[] = [];
  /** Batches of frames among them, from which nothing is withdrawn. */
  #frames = 0;
  /** Called in this order when no batch of packets is open; and when no batch of frames is, either. */
  readonly #packetReleases: (() => void)[] = [];
  readonly #releases: (() => void)[] = [];

  /** Those that packets may be withdrawn from. */
  get list(): readonly Batch[] {
    return this.#batches;
  }

  /** Whether any is open. */
  get any(): boolean {
    return this.#batches.length + this.#frames > 0;
  }

  /** Packets go into a batch. */
  open(batch: Batch): void {
    const batches = this.#batches;
    // Nearly always the only one, and no call to find it.
    if (batches[0] !== batch && !batches.includes(batch)) batches.push(batch);
  }

  /** The link has looked at all of a batch, or it has none. Nothing happens where it is not open. */
  close(batch: Batch): void {
    const at = this.#batches[0] === batch ? 0 : this.#batches.indexOf(batch);
    if (at < 0) return;
    this.#batches[at] = this.#batches[this.#batches.length - 1];
    this.#batches.pop();
    if (this.#packetReleases.length > 0 && this.#batches.length === 0) callAll(this.#packetReleases);
    if (this.#releases.length > 0 && !this.any) callAll(this.#releases);
  }

  /** Frames go into a batch. */
  openFrames(): void {
    this.#frames++;
  }

  /** The port has looked at all of that batch. */
  closeFrames(): void {
    this.#frames--;
    if (this.#releases.length > 0 && !this.any) callAll(this.#releases);
  }

  /** Calls this once no batch is open: at once, where none is. */
  afterwards(release: () => void): void {
    if (this.any) this.#releases.push(release);
    else release();
  }

  /** The same for what frames do not name: they may wait for their port for long. */
  afterPackets(release: () => void): void {
    if (this.#batches.length > 0) this.#packetReleases.push(release);
    else release();
  }

  /** Calls this when the last open batch is closed, which may be one that is still to be opened. */
  atClose(release: () => void): void {
    this.#releases.push(release);
  }
}

/** Calls what is on the list, which is empty from then on: a release may put another one there. */
function callAll(releases: (() => void)[]): void {
  for (const release of releases.splice(0)) release();
}
