// The script `prepack` of each package: ends `npm pack` and `npm publish`. npm leaves `workspace:*` in the manifest, and such a
// package cannot be installed; pnpm puts in the versions, and the license.
if (!process.env.npm_config_user_agent?.startsWith('pnpm/')) {
  const [command, folder] = [process.env.npm_command ?? 'pack', process.cwd()];
  console.error(`npm ${command} in ${folder}: npm does not replace \`workspace:*\`, so the package could not be installed. \
Use \`npx --yes pnpm@12 ${command}\` there.`);
  process.exit(1);
}
