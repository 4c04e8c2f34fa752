/** `roce conform --via cm`: the rules of the connection manager, against rping on a device of ours (`roce run`). */
import { compare, isServedBy, LISTS, open, play, RULES, type Rule, rules } from '@node-roce/conform';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Devices, isThere, type Running, whyMissing } from '../programs/programs.ts';

const missing = whyMissing() ?? (isThere('rping') ? undefined : 'not installed: rdmacm-utils');
if (missing) console.log(`rping is not run: ${missing}`);

describe.skipIf(missing !== undefined)('a service of rping', () => {
  const address = '127.0.0.92';
  let devices: Devices;
  let service: Running;
  let client: Running;
  let isOver = false;

  /** A connection that fails ends rping. */
  async function serve(): Promise<void> {
    while (!isOver) {
      service = devices.start(0, 'rping', ['-s', '-P', '-S', '4096']);
      await service.ended;
    }
  }

  /** Connects to the tester; a REQ that nobody answers is repeated for a minute. */
  async function call(): Promise<void> {
    while (!isOver) {
      client = devices.start(0, 'rping', ['-c', '-a', '127.0.0.1', '-C', '1']);
      await client.ended;
    }
  }

  let served: Promise<unknown> | undefined;

  beforeAll(async () => {
    devices = await Devices.open(address);
    served = Promise.all([serve(), call()]);
  });
  afterAll(async () => {
    isOver = true;
    service?.child.kill();
    client?.child.kill();
    await served;
    await devices?.close();
  });

  // Patience costs nothing where the answer comes.
  const opened = () => open({ via: 'cm', host: address, link: 'udp', patience: 10_000 });

  test('keeps every rule of the connection manager', { tags: ['slow', 'gate'] }, async () => {
    await using bench = await opened();
    // On a busy machine, rping takes seconds to start, each time anew: until then, its service does not listen and its client does not ask.
    const testable = async (rule: Rule) => {
      for (;;) {
        const result = await play(rule, bench);
        if (result.verdict !== 'not testable') return result;
        bench.isListening = undefined;
      }
    };
    await testable(rules('CM-01')[0]);
    for (const rule of RULES.filter((each) => isServedBy(each, 'cm'))) {
      const [{ verdict, why, ladder }] = compare([await testable(rule)], LISTS['node-roce']);
      expect(['pass', 'known'], `${rule.id}: ${verdict}: ${why.join('\n')}\n${ladder}`).toContain(verdict);
    }
  });

  test('a rule that needs an agent is not testable', async () => {
    await using bench = await opened();
    expect(await play(rules('PSN-01')[0], bench)).toMatchObject({ verdict: 'not testable' });
  });
});
