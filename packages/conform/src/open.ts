/** A device on a network, ready to be tested: the way to it, and the line. */
import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { isIPv6 } from 'node:net';
import type { Bench, Waits } from './case.ts';
import { Agent } from './network/agent.ts';
import { agentDevice } from './network/agent-device.ts';
import { PacketLine } from './network/packet-line.ts';
import { perftestDevice } from './network/perftest-device.ts';
import { UdpLine } from './network/udp-line.ts';

/** The agent's own default. */
const AGENT_PORT = 18_777;

export interface OpenOptions extends Partial<Waits> {
  /** `agent`: a program next to the device (`AGENT_SOURCE`); `perftest`: servers of perftest there. */
  via: 'agent' | 'perftest';
  /** Name or IPv4 address of the device. */
  host: string;
  /** TCP port of the agent (18777), or of `ib_write_bw` (18515). */
  port?: number;
  /** The agent's. */
  token?: string;
  /** `packet` needs CAP_NET_RAW; `udp` needs no privilege, and some rules are not testable. Default `packet`. */
  link?: 'packet' | 'udp';
  /** Local address; the one that leads to the device by default. */
  source?: string;
}

/** A bench that is closed when the tests are over: then the device keeps nothing of it. */
export interface OpenBench extends Bench, AsyncDisposable {
  close(): Promise<void>;
}

/** The local address that leads to a host, from the kernel's routes: nothing is sent. */
async function sourceFor(host: string): Promise<string> {
  const socket = createSocket('udp4');
  try {
    socket.connect(9, host);
    await once(socket, 'connect');
    return socket.address().address;
  } finally {
    socket.close();
  }
}

/** @throws Error where there is no agent, no route, or not the privilege */
export async function open(options: OpenOptions): Promise<OpenBench> {
  const { via, host: name, port, token, link = 'packet', quiet = 150, patience = 800, slack = 50 } = options;
  if (isIPv6(name)) throw new Error(`${name}: the rules are played over IPv4`);
  const host = (await lookup(name, { family: 4 })).address;
  const agent = via === 'agent' ? await Agent.connect(host, port ?? AGENT_PORT) : undefined;
  try {
    const device = agent ? await agentDevice(agent, token) : perftestDevice(host, port);
    const source = options.source ?? (await sourceFor(host));
    const line = link === 'udp' ? await UdpLine.open(host, source) : await PacketLine.open(host, source);
    const close = async () => {
      agent?.close();
      line.close();
    };
    // Connections of the last run may still be known to the device: other numbers.
    const connections = Date.now() & 0xffff;
    return {
      line,
      device,
      waits: { quiet, patience, slack },
      connections,
      close,
      [Symbol.asyncDispose]: close,
    };
  } catch (error) {
    agent?.close();
    throw error;
  }
}
