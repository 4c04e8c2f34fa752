/** The analysis of a capture as Parquet tables, written while it is read. */
import {
  type Addresses,
  type CaptureSummary,
  FlowAnalyzer,
  type PacketVerdict,
  type ReadOptions,
  type RocePacket,
  readPackets,
} from '@node-roce/capture/node';
import type { CaptureSource } from '@node-roce/pcap/node';
import { TableClock } from './clock.ts';
import { Dataset, type TableWriter } from './dataset.ts';
import {
  connectionTable,
  findingTable,
  type MessageRow,
  messageTable,
  type PacketRow,
  packetTable,
  type Surroundings,
} from './tables.ts';

const TABLES = ['packets', 'messages', 'connections', 'findings'] as const;

export interface ParquetOptions extends Omit<ReadOptions, 'onPacket' | 'onPause' | 'onIcmp' | 'onRefused'> {
  folder: string;
  host: string;
  /** Name of the capture: of its file, or of the first one. */
  capture: string;
}

export interface ParquetResult {
  summary: CaptureSummary;
  /** Rows of each table. */
  rows: Record<(typeof TABLES)[number], number>;
  /** Files written; 0: the input is no capture, and nothing was written. */
  files: number;
}

/**
 * Writes the tables of a capture into a folder, in memory that does not grow with it. After an error or an abort, nothing of them is
 * there.
 */
export async function exportParquet(
  source: CaptureSource | readonly string[],
  { folder, host, capture, ...reading }: ParquetOptions,
): Promise<ParquetResult> {
  const dataset = new Dataset(folder, host, capture, TABLES);
  try {
    const { summary, rows } = await writeTables(source, reading, dataset, capture);
    reading.signal?.throwIfAborted();
    if (summary.frames === 0 && summary.damage !== undefined) {
      dataset.discard();
      return { summary, rows, files: 0 };
    }
    return { summary, rows, files: dataset.publish() };
  } catch (error) {
    dataset.discard();
    throw said(error as NodeJS.ErrnoException, folder);
  }
}

/** The error of a write names no file. */
function said(error: NodeJS.ErrnoException, folder: string): Error {
  if (error.syscall !== 'write' || error.path !== undefined) return error;
  const reason = error.code === 'ENOSPC' ? 'no space left on device' : error.message;
  return Object.assign(new Error(`${folder}: ${reason}. Nothing of this capture was left there`), {
    code: error.code,
  });
}

async function writeTables(
  source: CaptureSource | readonly string[],
  reading: ReadOptions,
  dataset: Dataset,
  capture: string,
): Promise<Omit<ParquetResult, 'files'>> {
  let begun:
    | { surroundings: Surroundings; packets: TableWriter<PacketRow>; messages: TableWriter<MessageRow> }
    | undefined;
  const begin = (startTime: string | undefined, addresses: Addresses) => {
    const clock = new TableClock(startTime);
    const surroundings = { capture, clock, addresses };
    const packets = dataset.writer(packetTable(surroundings), clock);
    const messages = dataset.writer(messageTable(surroundings), clock);
    return { surroundings, packets, messages };
  };
  let row: PacketRow | undefined;
  /** One object, used again for each row. */
  const addPacket = (packet: RocePacket, verdict: PacketVerdict | undefined): void => {
    row ??= { packet, verdict };
    row.packet = packet;
    row.verdict = verdict;
    begun!.packets.add(row);
  };
  const analyzer = new FlowAnalyzer({
    onPacket: addPacket,
    onMessage: (message, qps) => begun!.messages.add({ message, qps }),
  });
  const { summary, addresses } = await readPackets(source, {
    ...reading,
    onPacket: (packet, reader) => {
      begun ??= begin(reader.startTime, reader.addresses);
      if (packet.sampled) addPacket(packet, undefined);
      else analyzer.add(packet);
    },
    onPause: (pause) => analyzer.addPause(pause),
    onIcmp: (error) => analyzer.addIcmp(error),
  });
  begun ??= begin(summary.startTime, addresses);
  const { surroundings, packets, messages } = begun;
  // Connections that were never paired get their numbers here, and the messages that were outstanding come.
  const analysis = analyzer.finish(summary, addresses);
  const connections = dataset.writer(connectionTable(surroundings), surroundings.clock);
  for (const connection of analysis.connections) connections.add(connection);
  const findings = dataset.writer(findingTable(surroundings), surroundings.clock);
  for (const [i, group] of analysis.findings.entries())
    for (const finding of group.members ?? [group]) findings.add({ finding, number: i + 1 });
  for (const writer of [packets, messages, connections, findings]) writer.finish();
  const rows = {
    packets: packets.rows,
    messages: messages.rows,
    connections: connections.rows,
    findings: findings.rows,
  };
  return { summary, rows };
}
