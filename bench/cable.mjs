/**
 * Two network namespaces with a veth between them, 10.77.0.1 and 10.77.0.2, for links that need an interface of their own. Root.
 * Received packets are processed on the processor that the side is pinned to (RPS), as a network card's interrupt would be.
 */
import { execFileSync } from 'node:child_process';

const PREFIX = `roce-bench-${process.pid}`;
const HEADERS = 128;

const ip = (...args) => execFileSync('ip', args.join(' ').split(' '), { stdio: ['ignore', 'pipe', 'pipe'] });

let ends;
let reason;
/** As the interfaces are set. */
let set;

function make() {
  if (ends !== undefined || reason !== undefined) return;
  const names = [`${PREFIX}-a`, `${PREFIX}-b`];
  try {
    for (const name of names) ip('netns add', name);
    process.once('exit', () => {
      for (const name of names) ip('netns delete', name);
    });
    ip(`link add near0 netns ${names[0]} type veth peer name far0 netns ${names[1]}`);
    for (const [i, name] of names.entries()) {
      const nic = ['near0', 'far0'][i];
      ip(`-netns ${name} address add 10.77.0.${i + 1}/24 dev ${nic}`);
      ip(`-netns ${name} link set lo up`);
      ip(`-netns ${name} link set ${nic} up`);
      const steer = `echo ${1 << i} > /sys/class/net/${nic}/queues/rx-0/rps_cpus`;
      execFileSync('ip', ['netns', 'exec', name, 'sh', '-c', steer]);
    }
    ends = { namespaces: names, addresses: ['10.77.0.1', '10.77.0.2'] };
  } catch (error) {
    reason = `no network namespaces: ${String(error.stderr ?? error.message).trim()}`;
  }
}

/** @param segments packets of a super-packet (GSO) that the interfaces take at a time; the kernel cuts up longer ones before */
const taking = (segments) => ({
  missing() {
    make();
    return reason;
  },
  /** The ends, with interfaces for that path MTU. */
  at(pathMtu) {
    make();
    const wanted = `mtu ${pathMtu + HEADERS} gso_max_segs ${segments}`;
    if (set !== wanted) {
      for (const [i, name] of ends.namespaces.entries())
        ip(`-netns ${name} link set ${['near0', 'far0'][i]} ${wanted}`);
      set = wanted;
    }
    return ends;
  },
});

export const cable = taking(65_535);
/** The same cable, as to a network card that takes one packet at a time. */
export const cuttingCable = taking(1);
