/** An XRC domain: the shared receive queues that requests to its target queue pairs may name (IBTA vol 1 annex A14). */
import type { CompletionQueue } from '../completion-queue.ts';
import type { SharedReceiveQueue } from '../srq.ts';

/** A shared receive queue of a domain, and where its receives complete. */
export interface XrcSource {
  /** As requests name it: 24 bits. */
  readonly number: number;
  readonly srq: SharedReceiveQueue;
  readonly cq: CompletionQueue;
}

/** The part of a target queue pair that uses the sources. */
export interface XrcSink {
  /** The source is destroyed: its entries are gone, one that is in use too. */
  sourceGone(source: XrcSource): void;
}

/** Owns which SRQs and which target queue pairs belong together. */
export class XrcDomain {
  readonly #sources = new Map<number, XrcSource>();
  readonly #sinks = new Set<XrcSink>();

  /** The source of this number; undefined if there is none, or it is of another domain. */
  find(number: number): XrcSource | undefined {
    return this.#sources.get(number);
  }

  add(source: XrcSource): void {
    this.#sources.set(source.number, source);
  }

  remove(source: XrcSource): void {
    this.#sources.delete(source.number);
    for (const sink of this.#sinks) sink.sourceGone(source);
  }

  /** A target queue pair is created. */
  join(sink: XrcSink): void {
    this.#sinks.add(sink);
  }

  /** It is destroyed. */
  leave(sink: XrcSink): void {
    this.#sinks.delete(sink);
  }
}
