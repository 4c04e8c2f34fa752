/** A link around another one that passes everything on by default: pass on. */
import type { CopyBatch, GidEntry, RxBatch, TxBatch } from '@node-roce/transport';
import type { NetworkInterface } from './interfaces.ts';
import type { Link, LinkSharing } from './link.ts';

/** The base of links around a link; every method passes on to `inner`. */
export abstract class LinkWrapper implements Link {
  protected readonly inner: Link;
  abstract readonly kind: string;
  /** There only if the wrapped link takes part in groups. */
  readonly join?: NonNullable<Link['join']>;
  readonly leave?: NonNullable<Link['leave']>;
  /** There only if the wrapped link has frames; they go past the wrapper. */
  readonly frames?: NonNullable<Link['frames']>;
  /** There only if the wrapped link's addresses change. */
  readonly setAddress?: NonNullable<Link['setAddress']>;
  /** There only if the wrapped link stamps packets. */
  readonly stampArrivals?: NonNullable<Link['stampArrivals']>;
  /** There only if the wrapped link asks for it. */
  readonly setQueuePair?: NonNullable<Link['setQueuePair']>;

  constructor(inner: Link) {
    this.inner = inner;
    if (inner.frames) this.frames = (onWake) => inner.frames!(onWake);
    if (inner.setAddress) this.setAddress = (address, present) => inner.setAddress!(address, present);
    if (inner.stampArrivals) this.stampArrivals = () => inner.stampArrivals!();
    if (inner.setQueuePair) this.setQueuePair = (qpn, present) => inner.setQueuePair!(qpn, present);
    if (!inner.join) return;
    this.join = (group, sgidIndex) => this.joinGroup(group, sgidIndex);
    this.leave = (local) => this.leaveGroup(local);
  }

  /** `join` and `leave` of a link that has them, for wrappers to look on. */
  protected joinGroup(group: Uint8Array, sgidIndex: number): number {
    return this.inner.join!(group, sgidIndex);
  }
  protected leaveGroup(local: number): void {
    this.inner.leave?.(local);
  }

  get gids(): readonly GidEntry[] {
    return this.inner.gids;
  }
  get interface(): NetworkInterface | undefined {
    return this.inner.interface;
  }
  get port(): number {
    return this.inner.port;
  }
  get activeMtu(): number {
    return this.inner.activeMtu;
  }
  get receiveBuffer(): number {
    return this.inner.receiveBuffer;
  }
  get copy(): CopyBatch | undefined {
    return this.inner.copy;
  }
  get slab(): Uint8Array<ArrayBuffer> | undefined {
    return this.inner.slab;
  }
  get needsEventLoop(): boolean {
    return this.inner.needsEventLoop ?? false;
  }
  get sharing(): LinkSharing | undefined {
    return this.inner.sharing;
  }
  get limitations(): readonly string[] {
    return this.inner.limitations;
  }

  add(dgid: Uint8Array, sgidIndex: number, hopLimit: number): number {
    return this.inner.add(dgid, sgidIndex, hopLimit);
  }
  remove(peer: number): void {
    this.inner.remove(peer);
  }
  send(batch: TxBatch, from: number, time?: Float64Array): number {
    return this.inner.send(batch, from, time);
  }
  receive(batch: RxBatch, time?: Float64Array): number {
    return this.inner.receive(batch, time);
  }
  watch(onWake: () => void): void {
    this.inner.watch(onWake);
  }
  unwatch(): void {
    this.inner.unwatch();
  }
  setDeadline(microsecondsFromNow: number): void {
    this.inner.setDeadline(microsecondsFromNow);
  }
  wantWrite(on: boolean): void {
    this.inner.wantWrite(on);
  }
  ref(): void {
    this.inner.ref();
  }
  unref(): void {
    this.inner.unref();
  }
  stats(): Record<string, number> {
    return this.inner.stats();
  }
  close(): Promise<void> {
    return this.inner.close();
  }
}
