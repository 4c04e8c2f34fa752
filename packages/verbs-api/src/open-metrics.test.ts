/** The text of OpenMetrics, read by Prometheus' own parser where it is installed (Debian: python3-prometheus-client). */
import { spawnSync } from 'node:child_process';
import { AdapterCounters, QP_COUNTER_NAMES } from '@node-roce/transport';
import { describe, expect, test } from 'vitest';
import { clockOfTurns } from '../testing/clock.ts';
import { openPair } from '../testing/pair.ts';
import { Device } from './device.ts';
import { openMetrics } from './open-metrics.ts';

/** Reads a text; prints families as [name, type, [[sample, labels, value], ...]]. */
const PARSER = `
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
print(json.dumps([[f.name, f.type, [[s.name, s.labels, s.value] for s in f.samples]] for f in parse(sys.stdin.read())]))`;
type Sample = [name: string, labels: Record<string, string>, value: number];

/** Debian's own Python: another one has no packages of Debian. */
const python = (program: string, input = '') =>
  spawnSync('/usr/bin/python3', ['-c', program], { input, encoding: 'utf8' });

const hasParser = python('import prometheus_client').status === 0;

/** The samples of a text, which the parser has to accept. */
function parsed(text: string): Sample[] {
  const { status, stdout, stderr } = python(PARSER, text);
  if (status !== 0) throw new Error(stderr);
  return (JSON.parse(stdout) as [string, string, Sample[]][]).flatMap(([, , samples]) => samples);
}

const of = (samples: readonly Sample[], name: string) =>
  samples.filter(([sample]) => sample === name).map(([, labels, value]) => [labels, value]);

describe.skipIf(!hasParser && !process.env.CI)("Prometheus' parser", () => {
  test('reads every count of each device, and they are its counters', async () => {
    clockOfTurns();
    await using pair = await openPair({ faults: { loss: 0.05, seed: 5 } }, { timeout: 10 });
    const { a, b } = pair;
    for (let i = 0; i < 40; i++) {
      a.qp.postSend({
        opcode: 'RDMA_WRITE',
        signaled: true,
        sgList: [{ mr: a.mr, length: 5000 }],
        remote: b.mr.remote(),
      });
      expect((await a.cq.next()).status).toBe('SUCCESS');
    }
    const samples = parsed(await openMetrics([a.device, b.device]));
    const labels = [a.device, b.device].map(({ number }) => ({ device: String(number) }));
    const counters = [await a.device.counters(), await b.device.counters()];
    const names = new Set([...QP_COUNTER_NAMES, ...Object.keys(new AdapterCounters()), 'acceptedPackets']);
    for (const name of names as Set<keyof (typeof counters)[0]>) {
      const sample = `roce_${name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`)}_total`;
      expect(of(samples, sample), name).toEqual(labels.map((label, i) => [label, counters[i][name]]));
    }
    expect(counters[0].retransmittedPackets).toBeGreaterThan(0);
    expect(of(samples, 'roce_queue_pairs')).toEqual(labels.map((label) => [label, 1]));
    expect(of(samples, 'roce_link')).toContainEqual([
      { ...labels[0], count: 'outbound.lost' },
      counters[0].link['outbound.lost'],
    ]);
    expect(of(samples, 'roce_device_info').map(([label]) => label)).toMatchObject(labels);
  });

  test('reads a text of no devices, and of addresses as they may be', async () => {
    expect(parsed(await openMetrics([]))).toEqual([]);
    await using pair = await openPair();
    const { device } = pair.a;
    const odd = Object.create(Device.prototype, {
      number: { value: 7 },
      gids: { value: [{ address: 'a"b\\c\nd' }] },
      facts: { value: device.facts },
      queuePairs: { value: 0 },
      counters: { value: () => device.counters() },
    }) as Device;
    const [[labels]] = of(parsed(await openMetrics([odd])), 'roce_device_info');
    expect(labels).toMatchObject({ address: 'a"b\\c\nd' });
  });
});

test('contexts of one device count once, closed devices are left out', async () => {
  await using pair = await openPair();
  const { device } = pair.a;
  // Files share a process: a device of another one may be open.
  const own = [device, pair.b.device].map(({ number }) => `device="${number}"`);
  const lines = async () =>
    (await openMetrics())
      .match(/^roce_queue_pairs\{.*$/gm)
      ?.filter((line) => own.some((label) => line.includes(label)));
  const both = [
    `roce_queue_pairs{device="${device.number}"} 1`,
    `roce_queue_pairs{device="${pair.b.device.number}"} 1`,
  ];
  const second = device.openContext();
  expect(await lines()).toEqual(both);
  await second.close();
  expect(await lines()).toEqual(both);
  await device.close();
  expect(await lines()).toEqual([both[1]]);
});
