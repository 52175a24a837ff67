import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist", "build", "node_modules", "eslint.config.js"] },
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      // Numbers in messages are what they look like.
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      // A type parameter used once is how a caller says what an answer holds.
      "@typescript-eslint/no-unnecessary-type-parameters": "off",
      "max-lines-per-function": ["error", { max: 70, skipComments: true, skipBlankLines: true }],
    },
  },
  {
    files: ["test/**"],
    rules: {
      // node:test's functions return promises that its runner awaits.
      "@typescript-eslint/no-floating-promises": [
        "error",
        { allowForKnownSafeCalls: [{ from: "package", package: "node:test", name: ["test", "describe", "it", "suite"] }] },
      ],
      "max-lines-per-function": "off",
    },
  },
);
