/** A device on a network, ready to be tested: the way to it, and the line. */
import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { isIPv6 } from 'node:net';
import { gidFromText, gidToIpText } from '@node-roce/wire';
import type { Bench, Waits } from './case.ts';
import { Agent } from './network/agent.ts';
import { agentDevice } from './network/agent-device.ts';
import { listenerDevice } from './network/listener-device.ts';
import { PacketLine } from './network/packet-line.ts';
import { perftestDevice } from './network/perftest-device.ts';
import { UdpLine } from './network/udp-line.ts';

/** The agent's own default. */
const AGENT_PORT = 18_777;

export interface OpenOptions extends Partial<Waits> {
  /**
   * `agent`: a program next to the device (`AGENT_SOURCE`); `perftest`: servers of perftest there; `cm`: a service there that accepts
   * connections, for the rules of the connection manager.
   */
  via: 'agent' | 'perftest' | 'cm';
  /** Address of the device, or a name for its IPv4 address. IPv6 needs `link: 'udp'`. */
  host: string;
  /** TCP port of the agent (18777), or of `ib_write_bw` (18515); RDMA port of the service (7174, rping's). */
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

/** An address in the one form that packets are compared by. */
const textOf = (address: string): string => gidToIpText(gidFromText(address.split('%')[0]));

/** The address of a host; a name stands for its IPv4 address. */
async function addressOf(name: string): Promise<string> {
  if (!isIPv6(name)) {
    try {
      return (await lookup(name, { family: 4 })).address;
    } catch (cause) {
      const { code } = cause as NodeJS.ErrnoException;
      throw new Error(`${name}: no IPv4 address of this name was found (${code})`, { cause });
    }
  }
  if (/^fe[89ab]/i.test(name)) throw new Error(`${name}: a link-local address; give a global one`);
  return textOf(name);
}

/** The local address that leads to a host, from the kernel's routes: nothing is sent. */
async function sourceFor(host: string): Promise<string> {
  const socket = createSocket(isIPv6(host) ? 'udp6' : 'udp4');
  try {
    socket.connect(9, host);
    await once(socket, 'connect');
    return textOf(socket.address().address);
  } finally {
    socket.close();
  }
}

/** @throws Error where there is no agent, no route, or not the privilege */
export async function open(options: OpenOptions): Promise<OpenBench> {
  const { via, host: name, port, token, link = 'packet', quiet = 150, patience = 800, slack = 50 } = options;
  const host = await addressOf(name);
  if (isIPv6(host) && link === 'packet')
    throw new Error(`${name}: IPv6 is played over a UDP socket (--link udp)`);
  const agent = via === 'agent' ? await Agent.connect(host, port ?? AGENT_PORT) : undefined;
  try {
    const makeDevice = via === 'cm' ? listenerDevice : perftestDevice;
    const device = agent ? await agentDevice(agent, token) : makeDevice(host, port);
    const source = options.source === undefined ? await sourceFor(host) : textOf(options.source);
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
