/** Several captures as one, in the order of time. */
import type { RecordSource } from './batches.ts';
import { CaptureError } from './errors.ts';
import type { PacketRecord } from './record.ts';

/** A capture that can be opened, twice: its first packet is looked at before its turn comes. */
export interface Openable {
  readonly name: string;
  open(): RecordSource;
}

/** A file that is read, and where. */
interface Open {
  name: string;
  /** Place in the list of files. */
  order: number;
  reader: RecordSource;
  batches: AsyncIterator<PacketRecord[]>;
  batch: PacketRecord[];
  next: number;
}

interface Waiting {
  file: Openable;
  order: number;
  seconds: number;
  nanoseconds: number;
}

/**
 * Captures as one: their packets by time, as mergecap does. Packets of one file keep their order. A file is opened when the time of
 * its first packet has come, so that a ring of many files has few open at a time. Damage ends the reading of a file; the others go
 * on, and the damage is thrown at the end.
 *
 * @param files the order decides between packets of the same time
 */
export function mergeCaptures(files: readonly Openable[]): RecordSource {
  return new MergedCaptures(files);
}

class MergedCaptures implements RecordSource {
  readonly #files: readonly Openable[];
  readonly #open: Open[] = [];
  #waiting: Waiting[] = [];
  #finished = 0;
  #damage: CaptureError | undefined;
  readonly #batches: AsyncGenerator<PacketRecord[], void, undefined>;

  constructor(files: readonly Openable[]) {
    this.#files = files;
    this.#batches = this.#read();
  }

  get offset(): number {
    return this.#open.reduce((sum, { reader }) => sum + reader.offset, this.#finished);
  }

  [Symbol.asyncIterator](): AsyncGenerator<PacketRecord[], void, undefined> {
    return this.#batches;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#batches.return();
  }

  async *#read(): AsyncGenerator<PacketRecord[], void, undefined> {
    try {
      for (const [order, file] of this.#files.entries()) await this.#look(file, order);
      this.#waiting = this.#waiting.toSorted(
        (x, y) => x.seconds - y.seconds || x.nanoseconds - y.nanoseconds,
      );
      for (;;) {
        await this.#admit();
        if (this.#open.length === 0) break;
        // Ends where a file needs its next batch, or another file has to be opened.
        const batch = this.#merge();
        if (batch.length > 0) yield batch;
        await this.#refill();
      }
      if (this.#damage !== undefined) throw this.#damage;
    } finally {
      for (const { reader } of this.#open) await reader[Symbol.asyncDispose]();
    }
  }

  /** Reads the time of the first packet. */
  async #look(file: Openable, order: number): Promise<void> {
    await using reader = file.open();
    try {
      for await (const [first] of reader) {
        const { seconds, nanoseconds } = first;
        this.#waiting.push({ file, order, seconds, nanoseconds });
        return;
      }
    } catch (error) {
      this.#note(file.name, error);
    }
  }

  /** Opens the files whose time has come: those that begin before the earliest packet at hand. */
  async #admit(): Promise<void> {
    while (this.#waiting.length > 0) {
      const [first] = this.#waiting;
      const head = this.#earliest();
      if (head !== undefined && isBefore(headOf(head), first)) return;
      this.#waiting.shift();
      const reader = first.file.open();
      const opened = {
        name: first.file.name,
        order: first.order,
        reader,
        batches: reader[Symbol.asyncIterator](),
        batch: [],
        next: 0,
      };
      this.#open.push(opened);
      await this.#refill();
    }
  }

  #earliest(): Open | undefined {
    let found: Open | undefined;
    for (const each of this.#open) {
      if (found === undefined || isBefore(headOf(each), headOf(found))) found = each;
      else if (each.order < found.order && !isBefore(headOf(found), headOf(each))) found = each;
    }
    return found;
  }

  #merge(): PacketRecord[] {
    const merged: PacketRecord[] = [];
    const [limit] = this.#waiting;
    for (let head = this.#earliest(); head !== undefined; head = this.#earliest()) {
      const record = headOf(head);
      if (limit !== undefined && !isBefore(record, limit)) break;
      merged.push(record);
      head.next++;
      if (head.next === head.batch.length) break;
    }
    return merged;
  }

  /** The next batch of files that have none left; records of before do not hold any more. */
  async #refill(): Promise<void> {
    for (const each of [...this.#open]) {
      if (each.next < each.batch.length) continue;
      let result: IteratorResult<PacketRecord[]> | undefined;
      try {
        result = await each.batches.next();
      } catch (error) {
        this.#note(each.name, error);
      }
      each.next = 0;
      each.batch = result?.done === false ? result.value : [];
      if (each.batch.length > 0) continue;
      this.#open.splice(this.#open.indexOf(each), 1);
      this.#finished += each.reader.offset;
      await each.reader[Symbol.asyncDispose]();
    }
  }

  /** Keeps the first damage; failures of the system are thrown. */
  #note(name: string, error: unknown): void {
    if (!(error instanceof CaptureError)) throw error;
    this.#damage ??= new CaptureError(error.code, error.offset, `${name}: ${error.message}`, {
      cause: error,
    });
  }
}

const headOf = ({ batch, next }: Open): PacketRecord => batch[next];

const isBefore = (
  x: Pick<Waiting, 'seconds' | 'nanoseconds'>,
  y: Pick<Waiting, 'seconds' | 'nanoseconds'>,
): boolean => x.seconds < y.seconds || (x.seconds === y.seconds && x.nanoseconds < y.nanoseconds);
