/**
 * Memory that programs register and deregister all the time. Each lease is a buffer of its own with bytes before and
 * behind that nobody may touch; once it was deregistered, its bytes are changed and watched for a while: nothing may
 * write them any more, and who still sends them sends bytes that the peer does not expect.
 */
import { ModelAccess, type SimDevice, type SimRegion } from '@node-roce/sim';
import type { Random } from '@node-roce/wire';
import { require } from '../../../packages/sim/src/network/workload-checks.ts';
import { fillPattern, matchPattern } from './pattern.ts';

/** Bytes before and behind each region. */
const GUARD = 64;
/** How long memory is watched after it was deregistered, µs. */
const WATCHED = 100_000;
/** Decoys at a time. */
const DECOYS = 6;
/** All bytes of a decoy. */
export const SECRET = 0x53;

const ALL =
  ModelAccess.LOCAL_WRITE |
  ModelAccess.REMOTE_WRITE |
  ModelAccess.REMOTE_READ |
  ModelAccess.REMOTE_ATOMIC |
  ModelAccess.FLUSH_GLOBAL |
  ModelAccess.MW_BIND;

/** A piece of memory that a session holds, with guards around it. */
export class Lease {
  readonly buffer: Uint8Array<ArrayBuffer>;
  /** The registered part. */
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Of the bytes that it has where nothing was written. */
  readonly poison: number;
  readonly region: SimRegion;
  isOpen = true;

  constructor(device: SimDevice, length: number, poison: number) {
    this.buffer = new Uint8Array(length + 2 * GUARD);
    this.poison = poison;
    fillPattern(this.buffer, poison);
    this.bytes = this.buffer.subarray(GUARD, GUARD + length);
    this.region = device.register(this.bytes, ALL);
  }

  /** Whether bytes of the region were never written. */
  isUntouched(offset: number, length: number): boolean {
    const part = this.bytes.subarray(offset, offset + length);
    return matchPattern(part, this.poison, GUARD + offset) === length;
  }

  /** @throws Error when something was written outside of the region */
  checkGuards(): void {
    const { buffer, poison } = this;
    const behind = buffer.length - GUARD;
    const whole =
      matchPattern(buffer.subarray(0, GUARD), poison) === GUARD &&
      matchPattern(buffer.subarray(behind), poison, behind) === GUARD;
    require(whole, 'bytes outside of a region were written', {});
  }
}

/** The leases of one device. */
export class MemoryBook {
  readonly #device: SimDevice;
  readonly #random: Random;
  /** Deregistered, with the pattern that they were given then and the time until which they are watched. */
  readonly #watched: { buffer: Uint8Array; tag: number; until: number }[] = [];
  readonly #decoys: SimRegion[] = [];

  constructor(device: SimDevice, random: Random) {
    this.#device = device;
    this.#random = random;
  }

  lease(length: number): Lease {
    return new Lease(this.#device, length, this.#random.next());
  }

  /** Deregisters, and lets the index that the engine has free now be taken by memory that nobody may send. */
  release(lease: Lease, now: number): void {
    if (!lease.isOpen) return;
    lease.isOpen = false;
    lease.checkGuards();
    this.#device.deregister(lease.region);
    const tag = this.#random.next();
    fillPattern(lease.buffer, tag);
    this.#watched.push({ buffer: lease.buffer, tag, until: now + WATCHED });
    if (this.#random.chance(0.5)) this.#decoy(lease.bytes.length);
    this.check(now);
  }

  #decoy(length: number): void {
    const bytes = new Uint8Array(length).fill(SECRET);
    this.#decoys.push(this.#device.register(bytes, 0));
    if (this.#decoys.length > DECOYS) this.#device.deregister(this.#decoys.shift()!);
  }

  /** @throws Error when memory was written after it was deregistered */
  check(now: number): void {
    while (this.#watched.length > 0 && this.#watched[0].until <= now) {
      const { buffer, tag } = this.#watched.shift()!;
      require(matchPattern(buffer, tag) ===
        buffer.length, 'memory was written after it was deregistered', {});
    }
  }

  /** At the end: all of them. */
  finish(): void {
    this.check(Number.POSITIVE_INFINITY);
  }
}
