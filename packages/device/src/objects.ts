/** The objects of one program, by handles of its own. */
import { constants } from 'node:os';
import type {
  AddressHandle,
  CompletionChannel,
  CompletionQueue,
  MemoryRegion,
  MemoryWindow,
  ProtectionDomain,
  QueuePair,
  SharedReceiveQueue,
} from '@node-roce/verbs-api';
import type { Mapping } from './memory.ts';
import { Failed } from './protocol.ts';
import type { WorkQueue } from './shared-rings.ts';

const { EINVAL, ENOMEM } = constants.errno;

/** Objects of one program at most, of all kinds. */
const MAX_OBJECTS = 65_536;

interface Kinds {
  pd: ProtectionDomain;
  mr: MemoryRegion<ProtectionDomain>;
  mw: MemoryWindow;
  ah: AddressHandle;
  cq: CompletionQueue;
  channel: CompletionChannel;
  srq: SharedReceiveQueue;
  qp: QueuePair;
}
type Kind = keyof Kinds;

/** An object, and what of the program's goes with it. */
export type Thing<K extends Kind = Kind> = {
  [One in K]: {
    kind: One;
    it: Kinds[One];
    mapping?: Mapping;
    /** Parts of the arena that its rings have, or had before a resize. */
    rings?: number[];
    queues?: WorkQueue[];
    /** Tagged buffers that it has room for. */
    tags?: number;
  };
}[K];

/** Handles are never used again: an event that waits in a socket means what it meant. */
export class Objects {
  readonly #byHandle = new Map<number, Thing>();
  #last = 0;

  get size(): number {
    return this.#byHandle.size;
  }

  /** The handle of the object that is kept next: the context of queues, which events name them by. */
  get next(): number {
    return this.#last + 1;
  }

  /** ENOMEM where the program has its share. */
  room(): void {
    if (this.#byHandle.size >= MAX_OBJECTS) throw new Failed(ENOMEM, `more than ${MAX_OBJECTS} objects`);
  }

  /** Returns its handle. */
  keep(thing: Thing): number {
    this.#byHandle.set(++this.#last, thing);
    return this.#last;
  }

  find(handle: number): Thing | undefined {
    return this.#byHandle.get(handle);
  }

  /** EINVAL where there is none of that kind. */
  thing<K extends Kind>(kind: K, handle: number): Thing<K> {
    const thing = this.#byHandle.get(handle);
    if (thing?.kind !== kind) throw new Failed(EINVAL, `${handle} is the handle of no ${kind}`);
    return thing as Thing<K>;
  }

  get<K extends Kind>(kind: K, handle: number): Kinds[K] {
    return this.thing(kind, handle).it as Kinds[K];
  }

  forget(handle: number): void {
    this.#byHandle.delete(handle);
  }

  /** Forgets all, and returns what is mapped for them. */
  clear(): Mapping[] {
    const mappings = [...this.#byHandle.values()].flatMap(({ mapping }) => mapping ?? []);
    this.#byHandle.clear();
    return mappings;
  }
}
