/** The file that `roce capture` writes. */
import { LinkType, PcapngEncoder } from '@node-roce/pcap';
import { CaptureWriter, createCaptureFile } from '@node-roce/pcap/node';
import { DASH } from '../options.ts';
import type { Terminal } from '../terminal.ts';
import { FILTER, type InterfaceSource } from './interface-source.ts';

export type Batch = Parameters<CaptureWriter['write']>[0][];

/** The file: pcapng, with the kernel's counts at its end. */
export class Recorder implements AsyncDisposable {
  readonly name: string;
  readonly #source: InterfaceSource;
  readonly #writer: CaptureWriter<PcapngEncoder>;
  readonly #start = now();
  /** Counts of the kernel when the file began. */
  readonly #before: { received: number; dropped: number };
  #closed = false;

  static async open(path: string, source: InterfaceSource, terminal: Terminal): Promise<Recorder> {
    const { linkType, snapLength, name } = source.info;
    // The kernel cuts before a VLAN tag is put back.
    const tag = linkType === LinkType.ETHERNET ? 4 : 0;
    const described = { linkType, snapLength: snapLength + tag, name, filter: FILTER };
    const options = { application: 'node-roce', os: `${process.platform} ${process.arch}` };
    if (path !== DASH) {
      return new Recorder(
        path,
        source,
        await createCaptureFile(path, { ...options, interfaces: [described] }),
      );
    }
    const encoder = new PcapngEncoder(options);
    encoder.interface(described);
    return new Recorder('standard output', source, new CaptureWriter(terminal.binary(), encoder));
  }

  private constructor(name: string, source: InterfaceSource, writer: CaptureWriter<PcapngEncoder>) {
    this.name = name;
    this.#source = source;
    this.#writer = writer;
    this.#before = source.stats();
  }

  /** Resolves when the file takes more: meanwhile frames wait in the kernel's ring. */
  async write(batch: Batch): Promise<void> {
    let keepsUp = true;
    for (const record of batch) keepsUp = this.#writer.write(record) && keepsUp;
    if (!keepsUp) await this.#writer.drain();
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    const all = this.#source.stats();
    const received = all.received - this.#before.received;
    const dropped = all.dropped - this.#before.dropped;
    const timestamp = now();
    this.#writer.encoder.statistics(0, {
      timestamp,
      startTime: this.#start,
      endTime: timestamp,
      filterAccepted: received,
      osDropped: dropped,
      delivered: received - dropped,
    });
    await this.#writer.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

const now = (): bigint => BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e3)) * 1000n;
