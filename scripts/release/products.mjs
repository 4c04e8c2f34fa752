/**
 * The packages that users install. Each one holds the workspace's packages that it needs: it installs from its tarball alone, with any
 * package manager, and nobody has to know the inner packages.
 *
 * name         On the registry.
 * page         Its README.md, from the root of the repository.
 * description  As the registry shows it.
 * keywords     The same.
 * exports      What is imported → the export of a package of the workspace.
 * bin          The command → its file.
 * folders      Folders of the repository that the package holds too: texts of the programs name their files.
 */
export const PRODUCTS = [
  {
    name: 'node-roce',
    page: 'README.md',
    description:
      'RDMA over Converged Ethernet (RoCEv2) in software: connections, verbs, libibverbs names, captures',
    keywords: ['rdma', 'roce', 'infiniband', 'verbs', 'ibverbs', 'rdma_cm', 'pcap'],
    exports: {
      '.': '@node-roce/verbs-api',
      './worker': '@node-roce/verbs-api/worker', // Bundlers' second entry.
      './options': '@node-roce/verbs-api/options',
      './rdmacm': '@node-roce/rdmacm',
      './rsocket': '@node-roce/rsocket',
      './ibverbs': '@node-roce/ibverbs',
      './capture': '@node-roce/capture',
      './capture/node': '@node-roce/capture/node',
      './capture/analysis.schema.json': '@node-roce/capture/analysis.schema.json',
      './pcap': '@node-roce/pcap',
      './pcap/node': '@node-roce/pcap/node',
      './pcap/web': '@node-roce/pcap/web',
      './wire': '@node-roce/wire',
    },
    folders: ['docs', 'examples'],
  },
  {
    name: '@node-roce/cli',
    page: 'packages/cli/README.md',
    description: 'roce: talk to RDMA hosts, run RDMA programs, measure, capture and explain RoCE traffic',
    keywords: ['rdma', 'roce', 'infiniband', 'perftest', 'pcap', 'cli'],
    exports: { '.': '@node-roce/cli' },
    bin: { roce: '@node-roce/cli/bin/roce.js' },
    folders: ['docs'],
  },
  {
    name: '@node-roce/sim',
    page: 'packages/sim/README.md',
    description:
      'A simulator of RoCEv2: virtual time, networks that lose packets, a reference model of the rules',
    keywords: ['rdma', 'roce', 'simulation', 'conformance', 'testing'],
    exports: { '.': '@node-roce/sim' },
    folders: ['docs'],
  },
  {
    name: '@node-roce/conform',
    page: 'packages/conform/README.md',
    description: 'A conformance tester for RoCEv2 devices, packet by packet',
    keywords: ['rdma', 'roce', 'conformance', 'interop', 'testing'],
    exports: { '.': '@node-roce/conform' },
    folders: ['docs'],
  },
  {
    name: '@node-roce/dgram-native',
    page: 'native/README.md',
    description: 'UDP sockets in batches, with GSO, GRO and the RoCE ICRC: the native part of node-roce',
    keywords: ['rdma', 'roce', 'infiniband', 'udp', 'sendmmsg', 'gso'],
    exports: { '.': '@node-roce/dgram-native' },
    folders: [],
  },
];
